"""Draft models in the shipped form: some of the target's layers, trained, and the id map.

The tensors are the decoder's, by their names in a model that has these layers only. Embedding and
LM head are the target's own. Files stay below `FILE_BYTES`: those behind the first are named in
`head.more_files`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.models.heads.checkpoint import (
    CONFIG,
    WEIGHTS,
    check_shipped,
    is_shipped,
    save_shipped,
    stored,
)
from outrider.models.heads.layers import layers_of, prune_head
from outrider.models.heads.record import CheckpointError, Record, read_draft_ids, read_tensors, take
from outrider.models.heads.target import TargetParts

METHOD = "draft_model"
FROZEN = ("embed_tokens.weight", "lm_head.weight")
FILE_BYTES = 16 << 20


@dataclass(frozen=True)
class DraftModel:
    """A draft model that runs: its head has a row for each of `ids` [rows], ascending."""

    model: PreTrainedModel
    ids: Tensor
    layers: tuple[int, ...]


def trained_tensors(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Parameters of the decoder that are no embedding's, by name."""
    decoder: nn.Module = model.base_model
    frozen = {
        id(parameter)
        for module in decoder.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    return {name: p for name, p in decoder.named_parameters() if id(p) not in frozen}


def save_draft_model(
    folder: Path,
    tensors: Mapping[str, Tensor],
    layers: Sequence[int],
    ids: Tensor,
    target: TargetParts,
) -> None:
    """Writes the shipped form.

    Args:
        tensors: those of `trained_tensors`.
        layers: of the target, from which they began.
        ids: target ids [rows] ascending of the draft head's rows.
        target: whose layers they were.
    """
    first, *others = _split({"d2t": (ids - torch.arange(len(ids))).int(), **tensors})
    names = [f"model-{number}.safetensors" for number in range(2, len(others) + 2)]
    head = {"layers": list(layers), "draft_vocab_size": len(ids), "more_files": names}
    save_shipped(folder, METHOD, target, head, first, FROZEN)
    for name, part in zip(names, others, strict=True):
        save_file(stored(part), folder / name)


def is_shipped_draft(folder: Path) -> bool:
    """Whether a folder holds the shipped form rather than a whole model.

    Raises:
        CheckpointError: its config.json cannot be read.
    """
    return is_shipped(Record.read(folder / CONFIG))


def load_draft_model(folder: Path, model: PreTrainedModel, target: TargetParts) -> DraftModel:
    """Builds the draft model, float32 on the CPU.

    Args:
        folder: what `save_draft_model` filled.
        model: the target, whose embedding and head are copied; it is left as it is.
        target: its parts.

    Raises:
        CheckpointError: it is damaged or does not fit; the message names file, field and values.
    """
    record = Record.read(folder / CONFIG)
    head = check_shipped(record, METHOD, target)
    rows = head.integer("draft_vocab_size", 1, target.vocab_size)
    layers = head.value("layers", list)
    whole = all(type(layer) is int and 0 <= layer < target.layers for layer in layers)
    if not layers or not whole or layers != sorted(set(layers)):
        raise head.refuse("layers", layers, f"ascending within 0 to {target.layers - 1}")
    tensors: dict[str, Tensor] = {}
    places: dict[str, Path] = {}
    for name in (WEIGHTS, *head.value("more_files", list, [])):
        file = folder / Path(str(name)).name
        found = read_tensors(file)
        places |= dict.fromkeys(found, file)
        tensors |= found
    ids = read_draft_ids(tensors, folder / WEIGHTS, rows, target.vocab_size)
    made = layers_of(model, layers)
    wanted = trained_tensors(made)
    for name in tensors.keys() - wanted.keys() - {"d2t"}:
        raise CheckpointError(f"{places[name]}: tensor {name} has no place in layers {layers}")
    for name, parameter in wanted.items():
        file = places.get(name, folder / WEIGHTS)
        parameter.data.copy_(take(tensors, file, name, parameter.shape))
    prune_head(made, ids)
    made.requires_grad_(False).train(False)
    return DraftModel(made, ids, tuple(layers))


def _split(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Tensors file by file, counted as bfloat16."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if parts[-1] and size + 2 * tensor.numel() > FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += 2 * tensor.numel()
    return parts
