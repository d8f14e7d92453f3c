"""Models of some of a target's layers, and heads of some of its rows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from outrider.models.family import blocks_of


def layers_of(target: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """A float32 copy of a target that has only `layers` (ascending) of its own.

    Raises:
        ValueError: a layer is out of range.
    """
    config = copy.deepcopy(target.config)
    text = config.get_text_config()
    total = text.num_hidden_layers
    if (
        not layers
        or list(layers) != sorted(set(layers))
        or not 0 <= layers[0] <= layers[-1] < total
    ):
        raise ValueError(f"layers: {list(layers)}, limit ascending within 0 to {total - 1}")
    text.num_hidden_layers = len(layers)
    for name, value in vars(text).items():
        if isinstance(value, list) and len(value) == total:  # one entry a layer
            setattr(text, name, [value[layer] for layer in layers])
    made: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation="sdpa", dtype=torch.float32
    )
    blocks = blocks_of(made.base_model, len(layers))
    sources = blocks_of(target.base_model, total)
    inside = {id(p) for p in blocks.parameters()}
    given = target.state_dict()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if id(parameter) not in inside:
                parameter.copy_(given[name])
        for block, layer in zip(blocks, layers, strict=True):
            block.load_state_dict(sources[layer].state_dict())
    return made


def prune_head(model: PreTrainedModel, ids: Tensor) -> None:
    """Leaves the head's rows `ids`; the embedding keeps all of its own."""
    output: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    rows = nn.Linear(output.in_features, len(ids), bias=output.bias is not None)
    with torch.no_grad():
        rows.weight.copy_(output.weight[ids])
        if output.bias is not None:
            rows.bias.copy_(output.bias[ids])
    model.config.get_text_config().tie_word_embeddings = False
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(rows)  # type: ignore[no-untyped-call]
