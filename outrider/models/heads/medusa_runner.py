"""Runs Medusa heads over the final states of many sessions at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from outrider.models.heads.medusa import MedusaHeads

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
    """On the lean decoder's linears: a layer of all heads' blocks is one product, and a shared LM
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
        # Of each layer: weights of all heads [heads * hidden, hidden], biases [heads, hidden].
        self._layers = [
            (
                make(torch.cat([linear.weight for linear in layer]).detach()),
                torch.stack([linear.bias for linear in layer]).detach().float().numpy(),
            )
            for layer in zip(*linears, strict=True)
        ]
        self._heads = [make(head.weight.detach()) for head in heads.lm_heads]  # type: ignore[operator]
        if heads.config.root_embedding:
            with torch.inference_mode():
                added = heads.added(torch.arange(heads.config.vocab_size)).bfloat16()
            self._added: npt.NDArray[np.uint16] = added.view(torch.uint16).numpy()

    def logits(self, states: Rows, roots: Sequence[int], heads: int) -> Rows:
        """See `MedusaRunner`."""
        from outrider.models.lean.layer import apply_linear
        from outrider.models.lean.threads import take_threads

        take_threads()
        kind, rows = self._kind, np.ascontiguousarray(states)
        if self._config.root_embedding:
            rows = rows + (self._added[list(roots)].astype(np.uint32) << 16).view(np.float32)
        count, (linear, bias) = self._config.heads, self._layers[0]
        z = apply_linear(linear, rows, kind).reshape(len(rows), count, -1)
        z = rows[:, None] + _silu(z + bias)
        own = np.arange(count)
        for linear, bias in self._layers[1:]:
            # Every head's rows meet all heads' weights, whose bytes are read once for all.
            met = apply_linear(linear, z.reshape(-1, rows.shape[1]), kind)
            z = z + _silu(met.reshape(len(rows), count, count, -1)[:, own, own] + bias)
        z = np.ascontiguousarray(z[:, :heads].swapaxes(0, 1))  # [heads, n, hidden]
        if self._config.shared:
            out = apply_linear(self._heads[0], z.reshape(-1, rows.shape[1]), kind)
            return out.reshape(heads, len(rows), -1)
        pairs = zip(self._heads, z, strict=False)
        return np.stack([apply_linear(head, each, kind) for head, each in pairs])


def _silu(x: Rows) -> Rows:
    out: Rows = functional.silu(torch.from_numpy(x)).numpy()
    return out
