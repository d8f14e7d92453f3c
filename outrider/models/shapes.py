"""The shapes of a transformers model's keys and values, found by running one row through it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.models.attention import BATCH, Batch, Shape, UnsupportedModelError
from outrider.models.pool import LayerShape


@dataclass
class _Probe(Batch):
    """Attention that attends to nothing and remembers what it was given."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, shape: Shape
    ) -> Tensor:
        """See `Batch`; zeros."""
        self.shapes[layer] = LayerShape(key.shape[0], key.shape[-1], value.shape[-1])
        return query.new_zeros(query.shape[1], query.shape[0], value.shape[-1])


@torch.inference_mode()
def layer_shapes(model: PreTrainedModel, layers: int) -> list[LayerShape]:
    """What each layer of the decoder caches.

    Raises:
        UnsupportedModelError: not every layer uses our attention, or it asks for something else.
    """
    probe = _Probe([], [])
    zero = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    model.base_model(input_ids=zero, position_ids=zero, use_cache=False, **{BATCH: probe})
    if sorted(probe.shapes) != list(range(layers)):
        seen = f"{len(probe.shapes)} of {layers} layers used our attention"
        raise UnsupportedModelError(f"{type(model).__name__}: {seen}")
    return [probe.shapes[layer] for layer in range(layers)]
