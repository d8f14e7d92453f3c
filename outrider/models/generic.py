"""Any decoder-only transformers model, run through its own code with our attention."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from outrider.models import interface
from outrider.models.attention import BATCH, Batch, Piece, chain_pieces
from outrider.models.cache import KVCache
from outrider.models.family import blocks_of
from outrider.models.linear import (
    pack_linears,
    packed_name,
    packing_available,
    quantise_linears,
)
from outrider.models.numerics import kernel_set
from outrider.models.segment import Segment
from outrider.models.shapes import layer_shapes
from outrider.models.tree import depths_of, exact_tree, is_chain, masked_tree


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


class GenericDecoder:
    """Takes a transformers model over: its attention and, where there are faster ones, its linears
    change.

    Args:
        model: any causal language model; it can no longer be trained or saved.
        quantised: int8 linears (weights and activations) instead of packed ones.

    Raises:
        UnsupportedModelError: its attention cannot run packed; the message says why.
    """

    name = "generic"

    def __init__(self, model: PreTrainedModel, quantised: bool = False) -> None:
        interface.register()
        model.set_attn_implementation(interface.NAME)
        text = model.config.get_text_config()
        self.device: torch.device = model.device
        self._groups = text.num_attention_heads // (
            getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        )
        self._decoder: nn.Module = model.base_model
        self._layers: int = text.num_hidden_layers
        self._blocks = blocks_of(self._decoder, self._layers)
        self.shapes = layer_shapes(model, self._layers)
        # Attention on the CPU computes in float32, and converting all keys at every step costs more
        # than keeping them.
        self.cache_dtype = torch.float32 if self.device.type == "cpu" else model.dtype
        packed = packing_available(model.dtype, self.device)
        if quantised:
            quantise_linears(model)
        elif packed:
            pack_linears(model)
        linears = "onednn-int8" if quantised else packed_name(model.dtype) if packed else "plain"
        self.kernels = kernel_set(self.device, linears, "blocks")
        # The family's own forward, fed with states instead of a decoder, keeps its soft caps and
        # scales.
        self._head = copy.copy(model)
        self._head._modules = {**model._modules, model.base_model_prefix: _Given()}

    def forward(
        self, segments: Sequence[Segment], taps: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `Decoder`."""
        positions: list[int] = []
        writes: list[tuple[KVCache, int, int]] = []
        pieces: list[Piece] = []
        for segment in segments:
            start, old = len(positions), segment.cache.length
            positions += [old + depth for depth in depths_of(segment.parents)]
            writes.append((segment.cache, start, len(positions)))
            pieces += self._pieces(segment, start)
        ids = torch.tensor([[t for s in segments for t in s.tokens]], device=self.device)
        where = torch.tensor([positions], device=self.device)
        with self._tapped(taps) as tapped:
            out = self._decoder(
                input_ids=ids,
                position_ids=where,
                use_cache=False,
                **{BATCH: Batch(writes, pieces)},
            )
        return out.last_hidden_state[0], tapped

    def logits(self, states: Tensor) -> Tensor:
        """See `Decoder`; with the family's soft caps and scales."""
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
