"""Runs Medusa heads over the final states of many sessions at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from outrider.models.heads.medusa import MedusaHeads, unit_rows

Rows = npt.NDArray[np.float32]


class MedusaRunner(Protocol):
    """What a Medusa drafter needs of its heads."""

    @property
    def draft_ids(self) -> npt.NDArray[np.int64]:
        """The target id of each logit."""
        ...

    def logits(self, states: Rows, roots: Sequence[int], heads: int) -> Rows:
        """Logits [heads, n, draft vocabulary] of the first `heads` heads.

        Args:
            states: final states of the target [n, hidden].
            roots: the token behind each of them.
            heads: how many are asked.
        """
        ...


class TorchMedusa:
    """Through the heads' own module."""

    def __init__(self, heads: MedusaHeads) -> None:
        self._heads = heads.requires_grad_(False).train(False)
        self.draft_ids: npt.NDArray[np.int64] = heads.draft_ids.cpu().numpy().copy()

    @torch.inference_mode()
    def logits(self, states: Rows, roots: Sequence[int], heads: int) -> Rows:
        """See `MedusaRunner`."""
        weight = self._heads.lm_head(0).weight
        rows = torch.from_numpy(np.ascontiguousarray(states)).to(weight.device, weight.dtype)
        behind = torch.tensor(roots, device=weight.device)
        out: Rows = self._heads.logits(rows, behind)[:heads].float().cpu().numpy()
        return out


class LeanMedusa:
    """On the lean decoder's linears: the first blocks of all heads are one product, and a shared LM
    head serves all of them in one.

    Args:
        heads: on the CPU.
        kind: of the linears: int8, bfloat16 or float32.
    """

    def __init__(self, heads: MedusaHeads, kind: torch.dtype = torch.int8) -> None:
        from outrider.models.lean.linear import Linear

        make = partial(Linear, kind=kind)
        self.draft_ids: npt.NDArray[np.int64] = heads.draft_ids.numpy().copy()
        self._config, self._kind = heads.config, kind
        linears = [[block.linear for block in blocks] for blocks in heads.blocks]  # type: ignore[attr-defined]
        self._biases = [
            [linear.bias.detach().float().numpy() for linear in each] for each in linears
        ]
        self._first = make(torch.cat([each[0].weight for each in linears]).detach())
        self._later = [[make(linear.weight.detach()) for linear in each[1:]] for each in linears]
        self._heads = [make(head.weight.detach()) for head in heads.lm_heads]  # type: ignore[operator]
        if heads.config.root_embedding:
            dense = torch.float32 if kind == torch.float32 else torch.bfloat16
            self._embedding = heads.embed_tokens.weight.detach().to(dense)
            self._root = make(heads.root.weight.detach())

    def logits(self, states: Rows, roots: Sequence[int], heads: int) -> Rows:
        """See `MedusaRunner`."""
        from outrider.models.lean.layer import apply_linear
        from outrider.models.lean.threads import take_threads

        take_threads()
        kind, rows = self._kind, np.ascontiguousarray(states)
        if self._config.root_embedding:
            embedded = unit_rows(self._embedding[torch.tensor(roots)].float()).numpy()
            rows = rows + apply_linear(self._root, embedded, kind)
        first = apply_linear(self._first, rows, kind).reshape(len(rows), -1, rows.shape[1])
        zs = []
        for head in range(heads):
            biases = self._biases[head]
            z = rows + _silu(first[:, head] + biases[0])
            for linear, bias in zip(self._later[head], biases[1:], strict=True):
                z = z + _silu(apply_linear(linear, z, kind) + bias)
            zs.append(z)
        if self._config.shared:
            out = apply_linear(self._heads[0], np.concatenate(zs), kind)
            return out.reshape(heads, len(rows), -1)
        pairs = zip(self._heads, zs, strict=False)
        return np.stack([apply_linear(head, z, kind) for head, z in pairs])


def _silu(x: Rows) -> Rows:
    out: Rows = functional.silu(torch.from_numpy(x)).numpy()
    return out
