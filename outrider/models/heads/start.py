"""Where training starts: heads whose weights come from the target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.models.family import blocks_of
from outrider.models.heads.config import EAGLE1, EagleConfig, MedusaConfig
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.medusa import MedusaHeads

SMALL = 0.02
"""Deviation of what starts at random and should hardly be felt at first."""


@torch.no_grad()
def start_eagle(
    config: EagleConfig, target: PreTrainedModel, draft_ids: Tensor, dropout: float = 0.0
) -> EagleHead:
    """A head with the target's embedding, the rows `draft_ids` of its LM head, its final norm and
    its first layer, where that has the same shape; the half that reads the feature starts small."""
    head = EagleHead(config, draft_ids, dropout).float()
    model: Any = target
    head.embed_tokens.weight.copy_(model.get_input_embeddings().weight)
    head.lm_head.weight.copy_(model.get_output_embeddings().weight[draft_ids])
    nn.init.normal_(head.fc.weight, std=SMALL)
    if config.kind == EAGLE1:
        nn.init.zeros_(head.fc.bias)
        head.fc.weight[:, : config.hidden_size] += torch.eye(config.hidden_size)
    base: Any = target.base_model
    _copy(head.norm, getattr(base, "norm", None))
    source: Any = blocks_of(base, target.config.get_text_config().num_hidden_layers)[0]
    layer: Any = head.layers[0]
    attention, mlp = getattr(source, "self_attn", None), getattr(source, "mlp", None)
    for name in ("q_proj", "k_proj", "v_proj"):
        projection = getattr(layer.self_attn, name)
        nn.init.normal_(projection.weight, std=SMALL)
        _copy_columns(projection, getattr(attention, name, None))
    _copy(layer.self_attn.o_proj, getattr(attention, "o_proj", None))
    for name in ("gate_proj", "up_proj", "down_proj"):
        _copy(getattr(layer.mlp, name), getattr(mlp, name, None))
    for name in ("input_layernorm", "post_attention_layernorm"):
        _copy(getattr(layer, name, None), getattr(source, name, None))
    return head


@torch.no_grad()
def start_medusa(config: MedusaConfig, target: PreTrainedModel, draft_ids: Tensor) -> MedusaHeads:
    """Heads that all predict what the target's own LM head does: identities and its rows."""
    model: Any = target
    heads = MedusaHeads(config, draft_ids).float()
    if config.root_embedding:
        heads.embed_tokens.weight.copy_(model.get_input_embeddings().weight)
    for head in heads.lm_heads:
        head.weight.copy_(model.get_output_embeddings().weight[draft_ids])  # type: ignore[operator]
        head.requires_grad_(not config.shared)
    return heads


def _copy(to: nn.Module | None, source: nn.Module | None) -> None:
    """The weight of a module that has the same shape; others stay as they are."""
    mine, theirs = getattr(to, "weight", None), getattr(source, "weight", None)
    if mine is not None and theirs is not None and mine.shape == theirs.shape:
        mine.copy_(theirs)


def _copy_columns(to: nn.Linear, source: nn.Module | None) -> None:
    """The weight of a narrower linear into the first inputs, where the outputs agree."""
    theirs = getattr(source, "weight", None)
    if theirs is not None and theirs.shape[0] == to.weight.shape[0]:
        to.weight[:, : theirs.shape[1]].copy_(theirs)
