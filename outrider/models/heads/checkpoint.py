"""The shipped form of a drafter: trained tensors and the id map alone.

A folder with `model.safetensors` (bfloat16; `d2t` is the offset from a draft id to its target id)
and `config.json`:

    format, version   "outrider-drafter", 1
    method            eagle, medusa or draft_model
    target            name, sizes, tokenizer and a hash of the embedding that it was trained for
    head              shape and switches, per method
    frozen            tensors that are the target's own and are rebuilt from it at load
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from outrider.models.heads.record import CheckpointError, Record
from outrider.models.heads.target import TargetParts

FORMAT, VERSION = "outrider-drafter", 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
METHODS = ("eagle", "medusa", "draft_model")


def save_shipped(
    folder: Path,
    method: str,
    target: TargetParts,
    head: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    frozen: Sequence[str],
) -> None:
    """Writes the shipped form; `tensors` without the frozen ones."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored(tensors), folder / WEIGHTS)
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "method": method,
        "target": target.identity(),
        "head": dict(head),
        "frozen": sorted(frozen),
    }
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as they are written: floating point in bfloat16, each with memory of its own."""
    return {
        name: (t.to(torch.bfloat16) if t.is_floating_point() else t).detach().cpu().clone()
        for name, t in tensors.items()
    }


def is_shipped(record: Record) -> bool:
    """Whether a config.json is that of the shipped form."""
    return record.fields.get("format") == FORMAT


def method_of(folder: Path) -> str:
    """Which method a checkpoint is for, of whatever form.

    Raises:
        CheckpointError: it is none that is known.
    """
    record = Record.read(folder / CONFIG)
    if is_shipped(record):
        method: str = record.value("method", str)
        if method not in METHODS:
            raise record.refuse("method", repr(method), f"one of {', '.join(METHODS)}")
        return method
    if "speculators_model_type" in record.fields:
        return "eagle"
    if "medusa_num_heads" in record.fields:
        return "medusa"
    if "model_type" in record.fields:
        return "draft_model"
    raise CheckpointError(
        f"{record.file}: none of format, speculators_model_type, medusa_num_heads and model_type "
        "is there to say what it is"
    )


def check_shipped(record: Record, method: str, target: TargetParts) -> Record:
    """Refuses a checkpoint of another method, version or target; returns its `head`.

    Raises:
        CheckpointError: naming file, field and both values.
    """
    record.integer("version", VERSION, VERSION)
    record.equal("method", method, "this drafter")
    of = record.inner("target")
    for field, expected in target.identity().items():
        if field != "name":
            of.equal(field, expected, f"target {target.name}")
    return record.inner("head")


def frozen_of(record: Record, allowed: Sequence[str]) -> list[str]:
    """The tensors that are rebuilt from the target.

    Raises:
        CheckpointError: one of them cannot be.
    """
    names: list[str] = record.value("frozen", list)
    for name in names:
        if name not in allowed:
            raise record.refuse("frozen", repr(name), f"one of {', '.join(allowed)}")
    return names
