"""A causal language model that runs the packed rows of many sessions in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.models.cache import KVCache
from outrider.models.decoders import make_decoder
from outrider.models.family import eos_ids_of
from outrider.models.numerics import Numerics, weights_hash
from outrider.models.pool import KVPool, LayerShape
from outrider.models.segment import Hidden, Segment
from outrider.models.tree import depths_of

__all__ = ["CausalLM", "Decoder", "Hidden", "Segment"]


class Decoder(Protocol):
    """What computes: the lean decoder, or the generic one around a transformers model."""

    @property
    def name(self) -> str:
        """lean or generic."""
        ...

    @property
    def kernels(self) -> str:
        """Names what decides the bits of its results."""
        ...

    @property
    def shapes(self) -> list[LayerShape]:
        """What each layer caches."""
        ...

    @property
    def cache_dtype(self) -> torch.dtype:
        """In which keys and values are kept."""
        ...

    def forward(
        self, segments: Sequence[Segment], taps: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """States [rows, hidden] after the final norm, and the inputs [rows, hidden] of the layers
        `taps`; writes keys and values to caches that have the room."""
        ...

    def logits(self, states: Tensor) -> Tensor:
        """The head: states [n, hidden] -> float32 [n, vocab]."""
        ...


class CausalLM:
    """A causal language model behind our own cache and attention. Build one with `from_model` or
    `load_model`.

    Not safe for several threads at once: one engine thread owns it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        name: str,
        tokenizer_fingerprint: str,
        numerics: Numerics,
        decoder: Decoder,
        pool: KVPool,
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
        self.pool = pool
        self.decoder = decoder

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        *,
        name: str,
        tokenizer_fingerprint: str,
        quantization: str = "none",
        decoder: str = "auto",
        kv_bytes: int = 1 << 30,
    ) -> CausalLM:
        """Takes over a transformers model.

        Args:
            model: any causal language model; it can no longer be trained or saved.
            name: how it is called in reports.
            tokenizer_fingerprint: see `outrider.models.tokenizer`.
            quantization: "none", or "int8" for weights and activations of the linears, and in
                the lean decoder for keys and values.
            decoder: "lean", "generic", or "auto" for the lean one where it serves the model.
            kv_bytes: ceiling of the memory of keys and values.

        Raises:
            UnsupportedModelError: it cannot run packed; the message says why.
        """
        model.requires_grad_(False).train(False)
        digest = weights_hash(model)
        made = make_decoder(model, decoder, quantization)
        dtype = str(model.dtype).removeprefix("torch.")
        numerics = Numerics(digest, dtype, quantization, made.kernels)
        pool = KVPool(made.shapes, made.cache_dtype, model.device, kv_bytes)
        lm = cls(model, name, tokenizer_fingerprint, numerics, made, pool)
        # One row now tells what the layers' code does with our attention, rather than the first
        # request.
        lm.logits(lm.forward([Segment.chain(lm.new_cache(), [0])]).states)
        return lm

    def new_cache(self) -> KVCache:
        """An empty cache for one session."""
        return KVCache(self.pool)

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
            PoolFullError: keys and values have no room; no cache has changed its length.
        """
        self._check(segments, taps)
        for segment in segments:
            segment.cache.reserve(segment.cache.length + len(segment.tokens))
        states, tapped = self.decoder.forward(segments, [t for t in taps if t != self.layers])
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
        return self.decoder.logits(states)

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
