"""A decoder-only transformers model that runs the packed rows of many sessions in one forward."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from outrider.models import attention
from outrider.models.attention import BATCH, Batch, Piece, UnsupportedModelError, chain_pieces
from outrider.models.cache import KVCache
from outrider.models.family import blocks_of, check_supported, eos_ids_of
from outrider.models.linear import pack_linears, packing_available
from outrider.models.numerics import Numerics, kernel_set, weights_hash
from outrider.models.tree import depths_of, exact_tree, is_chain, masked_tree


@dataclass(frozen=True)
class Segment:
    """Rows of one session in a forward.

    Args:
        cache: the session's cache; it grows by the rows.
        tokens: token id of each row.
        parents: parent of each row within the segment; -1 follows the last cached row. Parents come
            first.
        tree_exact: whether a tree is computed path by path, with the bits that each path alone
            would have.
    """

    cache: KVCache
    tokens: Sequence[int]
    parents: Sequence[int]
    tree_exact: bool = True

    @classmethod
    def chain(cls, cache: KVCache, tokens: Sequence[int]) -> Segment:
        """Rows that follow one another."""
        return cls(cache, tokens, range(-1, len(tokens) - 1))


@dataclass(frozen=True)
class Hidden:
    """What a forward returns, in the order of the packed rows.

    Shapes: states [rows, hidden] after the final norm; taps [rows, taps * hidden], or None where
        none was
    asked.
    """

    states: Tensor
    taps: Tensor | None


class _States(BaseModelOutputWithPast):
    """A decoder's output with nothing but states.

    What a family looks for besides (router logits) is None.
    """

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


class _Given(nn.Module):
    """Stands for the decoder where only the head of a model is wanted."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


class CausalLM:
    """A causal language model behind our own cache and attention. Build one with `from_model` or
    `load_model`.

    Not safe for several threads at once: one engine thread owns it.
    """

    def __init__(
        self, model: PreTrainedModel, name: str, tokenizer_fingerprint: str, numerics: Numerics
    ) -> None:
        text = model.config.get_text_config()
        self.name = name
        self.tokenizer_fingerprint = tokenizer_fingerprint
        self.numerics = numerics
        self.vocab_size: int = text.vocab_size
        self.context_length: int = text.max_position_embeddings
        self.hidden_size: int = text.hidden_size
        self.layers: int = text.num_hidden_layers
        self.eos_ids = eos_ids_of(model)
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self._groups = text.num_attention_heads // (
            getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        )
        self._decoder: nn.Module = model.base_model
        self._blocks = blocks_of(self._decoder, self.layers)
        # The family's own forward, fed with states instead of a decoder, keeps its soft caps and
        # scales.
        self._head = copy.copy(model)
        self._head._modules = {**model._modules, model.base_model_prefix: _Given()}

    @classmethod
    def from_model(
        cls, model: PreTrainedModel, *, name: str, tokenizer_fingerprint: str
    ) -> CausalLM:
        """Takes over a transformers model: its attention and, where there are faster ones, its
        linears change.

        Raises:
            UnsupportedModelError: its attention cannot run packed; the message says why.
        """
        check_supported(model)
        attention.register()
        model.set_attn_implementation(attention.NAME)
        model.requires_grad_(False).train(False)
        digest = weights_hash(model)
        packed = packing_available(model.dtype, model.device)
        if packed:
            pack_linears(model)
        dtype = str(model.dtype).removeprefix("torch.")
        numerics = Numerics(digest, dtype, "none", kernel_set(model.device, packed))
        made = cls(model, name, tokenizer_fingerprint, numerics)
        # One row now tells what the layers' code does with our attention, rather than the first
        # request.
        made.logits(made.forward([Segment.chain(made.new_cache(), [0])]).states)
        return made

    def new_cache(self) -> KVCache:
        """An empty cache for one session."""
        # Attention on the CPU computes in float32, and converting all keys at every step costs more
        # than keeping them.
        return KVCache(self.layers, torch.float32 if self.device.type == "cpu" else self.dtype)

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], taps: Sequence[int] = ()) -> Hidden:
        """Runs all rows of all segments at once.

        Row i of a segment is written at cache row old_length + i and stands at position old_length
        + depth(i); each cache's length grows by its segment's rows.

        Args:
            segments: at least one, each with its own cache and at least one row.
            taps: layers whose input is wanted besides, 0 for the embeddings; `layers` for the final
                state.

        Raises:
            ValueError: naming the field, the value and the limit.
        """
        self._check(segments, taps)
        positions: list[int] = []
        writes: list[tuple[KVCache, int, int]] = []
        pieces: list[Piece] = []
        for segment in segments:
            start = len(positions)
            old = segment.cache.length
            positions += [old + depth for depth in depths_of(segment.parents)]
            writes.append((segment.cache, start, len(positions)))
            pieces += self._pieces(segment, start)
            segment.cache.reserve(old + len(segment.tokens))
        batch = Batch(writes, pieces)
        ids = torch.tensor([[t for s in segments for t in s.tokens]], device=self.device)
        where = torch.tensor([positions], device=self.device)
        with self._tapped([t for t in taps if t != self.layers]) as tapped:
            out = self._decoder(
                input_ids=ids, position_ids=where, use_cache=False, **{BATCH: batch}
            )
        if batch.layers_seen != self.layers:
            seen = f"{batch.layers_seen} of {self.layers} layers used our attention"
            raise UnsupportedModelError(f"{self.name}: {seen}")
        states: Tensor = out.last_hidden_state[0]
        for segment in segments:
            segment.cache.length += len(segment.tokens)
        if not taps:
            return Hidden(states, None)
        tapped[self.layers] = states
        return Hidden(states, torch.cat([tapped[tap] for tap in taps], dim=-1))

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """The head, with the family's soft caps and scales.

        States [n, hidden] -> float32 [n, vocab].
        """
        logits: Tensor = self._head(inputs_embeds=states[None], use_cache=False).logits[0]
        return logits.float()

    def _pieces(self, segment: Segment, start: int) -> Sequence[Piece]:
        if is_chain(segment.parents):
            return chain_pieces(segment.cache, start, len(segment.tokens), self.device)
        if segment.tree_exact:
            return [exact_tree(segment.cache, start, segment.parents, self._groups, self.device)]
        return [masked_tree(segment.cache, start, segment.parents, self.device)]

    @contextmanager
    def _tapped(self, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        """Collects the inputs [rows, hidden] of `layers` while the decoder runs."""
        seen: dict[int, Tensor] = {}
        hooks = []
        for layer in layers:

            def hook(
                _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layer: int = layer
            ) -> None:
                seen[layer] = (args[0] if args else kwargs["hidden_states"])[0]

            hooks.append(self._blocks[layer].register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield seen
        finally:
            for handle in hooks:
                handle.remove()

    def _check(self, segments: Sequence[Segment], taps: Sequence[int]) -> None:
        if not segments:
            raise ValueError("segments: none given, at least 1 is needed")
        if len({id(s.cache) for s in segments}) != len(segments):
            raise ValueError("segments: two of them share a cache")
        for segment in segments:
            rows = len(segment.tokens)
            if not rows or len(segment.parents) != rows:
                given = f"{len(segment.parents)} entries for {rows} tokens"
                raise ValueError(f"parents: {given}, at least 1 is needed")
            for row, (token, parent) in enumerate(
                zip(segment.tokens, segment.parents, strict=True)
            ):
                if not -1 <= parent < row:
                    raise ValueError(
                        f"parents: row {row} has parent {parent}, limit -1 to {row - 1}"
                    )
                if not 0 <= token < self.vocab_size:
                    raise ValueError(f"tokens: {token}, limit 0 to {self.vocab_size - 1}")
            end = segment.cache.length + max(depths_of(segment.parents)) + 1
            if end > self.context_length:
                raise ValueError(f"tokens: {end} positions, limit {self.context_length}")
        for tap in taps:
            if not 0 <= tap <= self.layers:
                raise ValueError(f"taps: {tap}, limit 0 to {self.layers}")
