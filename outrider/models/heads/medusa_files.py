"""Medusa checkpoints: the shipped form, and the open one of FasterDecoding/Medusa.

The open form is config.json (`medusa_num_heads`, `medusa_num_layers`) and
`medusa_lm_head.safetensors`, whose names are those of their `nn.Sequential`s:
`{head}.{layer}.linear.weight` and `.bias` of the blocks, `{head}.{layers}.weight` of a head's own
matrix over the whole vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from outrider.models.heads.checkpoint import (
    CONFIG,
    WEIGHTS,
    check_shipped,
    frozen_of,
    is_shipped,
    save_shipped,
    stored,
)
from outrider.models.heads.config import MedusaConfig
from outrider.models.heads.medusa import MedusaHeads
from outrider.models.heads.record import CheckpointError, Record, fill, read_draft_ids, read_tensors
from outrider.models.heads.target import TargetParts

OPEN_WEIGHTS = "medusa_lm_head.safetensors"
MOST_HEADS, MOST_LAYERS = 32, 8
_SHARED, _EMBEDDING = "lm_heads.0.weight", "embed_tokens.weight"


def save_medusa(folder: Path, heads: MedusaHeads, target: TargetParts, frozen_head: bool) -> None:
    """Writes the shipped form, without the target's embedding, and without the LM heads where they
    are one, the target's own (`frozen_head`).

    Raises:
        ValueError: heads of their own cannot be frozen.
    """
    if frozen_head and not heads.config.shared:
        raise ValueError("frozen_head: True, limit False where each head has an LM head of its own")
    frozen = [_SHARED] if frozen_head else []
    frozen += [_EMBEDDING] if heads.config.root_embedding else []
    tensors = {n: t for n, t in heads.state_dict().items() if n not in frozen}
    save_shipped(folder, "medusa", target, asdict(heads.config), tensors, frozen)


def save_open_medusa(folder: Path, heads: MedusaHeads, target: TargetParts) -> None:
    """Writes the open form: rows that the heads do not have are the target's own.

    Raises:
        ValueError: heads have a root embedding, which that form has no place for.
    """
    config, tensors = heads.config, {}
    if config.root_embedding:
        raise ValueError(
            "root_embedding: True, limit False in the open form of Medusa heads; "
            "`outrider train medusa --no-root-embedding` makes such"
        )
    for head, blocks in enumerate(heads.blocks):
        named: Any = blocks
        for layer, block in enumerate(named):
            tensors[f"{head}.{layer}.linear.weight"] = block.linear.weight
            tensors[f"{head}.{layer}.linear.bias"] = block.linear.bias
        whole = target.head.detach().float().clone()
        whole[heads.draft_ids] = heads.lm_head(head).weight.detach().float()
        tensors[f"{head}.{config.layers}.weight"] = whole
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored(tensors), folder / OPEN_WEIGHTS)
    written = {
        "medusa_num_heads": config.heads,
        "medusa_num_layers": config.layers,
        "base_model_name_or_path": target.place or target.name,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "accuracies": config.accuracies,
    }
    (folder / CONFIG).write_text(json.dumps(written, indent=2) + "\n")


def load_medusa(folder: Path, target: TargetParts) -> MedusaHeads:
    """The heads of a checkpoint of either form, float32 on the CPU; what was left out is the
    target's.

    Raises:
        CheckpointError: it is damaged or does not fit; the message names file, field and values.
    """
    record = Record.read(folder / CONFIG)
    heads = _shipped(record, target) if is_shipped(record) else _open(record, target)
    return heads.eval()


def _shipped(record: Record, target: TargetParts) -> MedusaHeads:
    frozen = frozen_of(record, (_SHARED, _EMBEDDING))
    head = check_shipped(record, "medusa", target)
    head.equal("hidden_size", target.hidden_size, f"target {target.name}")
    head.equal("vocab_size", target.vocab_size, f"target {target.name}")
    config = MedusaConfig(
        target.hidden_size,
        target.vocab_size,
        head.integer("draft_vocab_size", 1, target.vocab_size),
        head.integer("heads", 1, MOST_HEADS),
        head.integer("layers", 1, MOST_LAYERS),
        head.value("shared", bool),
        _accuracies(head),
        head.value("root_embedding", bool, False),
    )
    file = record.file.parent / WEIGHTS
    tensors = read_tensors(file)
    ids = read_draft_ids(tensors, file, config.draft_vocab_size, target.vocab_size)
    heads = MedusaHeads(config, ids).float()
    rebuilt = {_SHARED: target.head[ids], _EMBEDDING: target.embedding}
    fill(heads, tensors, file, {name: rebuilt[name] for name in frozen}, ("d2t",))
    return heads


def _open(record: Record, target: TargetParts) -> MedusaHeads:
    count = record.integer("medusa_num_heads", 1, MOST_HEADS)
    layers = record.integer("medusa_num_layers", 1, MOST_LAYERS)
    for field, theirs in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size)):
        if field in record.fields:
            record.equal(field, theirs, f"target {target.name}")
    file = record.file.parent / OPEN_WEIGHTS
    tensors = read_tensors(file)
    matrices = [tensors.get(f"{head}.{layers}.weight") for head in range(count)]
    first = matrices[0]
    shared = first is not None and all(m is not None and torch.equal(m, first) for m in matrices)
    vocab, hidden = target.vocab_size, target.hidden_size
    config = MedusaConfig(hidden, vocab, vocab, count, layers, shared, _accuracies(record))
    heads = MedusaHeads(config).float()
    fill(heads, _renamed(tensors, file, config), file, {})
    return heads


def _renamed(tensors: Mapping[str, Tensor], file: Path, config: MedusaConfig) -> dict[str, Tensor]:
    """Their names as ours; the matrices of heads that share one are named once."""
    renamed = {}
    for name, tensor in tensors.items():
        head, _, rest = name.partition(".")
        layer, _, inner = rest.partition(".")
        if not head.isdigit() or not layer.isdigit() or int(head) >= config.heads:
            raise CheckpointError(
                f"{file}: tensor {name} has no place in {config.heads} heads of {config.layers} "
                "layers"
            )
        if int(layer) == config.layers and inner == "weight":
            renamed[f"lm_heads.{0 if config.shared else head}.weight"] = tensor
        else:
            renamed[f"blocks.{head}.{layer}.{inner}"] = tensor
    return renamed


def _accuracies(record: Record) -> tuple[tuple[float, ...], ...]:
    """How often each rank of each head was right; empty where it was not measured."""
    rows = record.value("accuracies", list, [])
    for row in rows:
        for value in row if isinstance(row, list) else [row]:
            if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise record.refuse("accuracies", value, "lists of 0 to 1")
    return tuple(tuple(float(value) for value in row) for row in rows)
