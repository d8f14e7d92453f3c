"""Draft models as they are shipped: the trained layers and the id map, nothing of the target.

config.json names the target and what was trained; the safetensors hold the decoder's tensors by
their names in a model that has these layers only (bfloat16), and `d2t` (int32): row j of the draft
head stands for the target's token j + d2t[j]. Embedding and head are the target's own and are put
in at load. Files stay below `FILE_BYTES`; an index as transformers writes it names several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.models.draft_layers import CheckpointError, layers_of, prune_head

__all__ = [
    "CheckpointError",
    "DraftModel",
    "Target",
    "is_draft",
    "layers_of",
    "read_draft",
    "write_draft",
]

FORMAT = 1
METHOD = "draft_model"
FILE_BYTES = 16 << 20
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Target:
    """Which target a drafter was trained for; `weights_hash` as loaded in float32."""

    name: str
    weights_hash: str
    hidden_size: int
    vocab_size: int
    layers: int

    @classmethod
    def of(cls, model: PreTrainedModel, name: str, weights_hash: str) -> Target:
        """A transformers model's."""
        text = model.config.get_text_config()
        return cls(name, weights_hash, text.hidden_size, text.vocab_size, text.num_hidden_layers)


@dataclass(frozen=True)
class DraftModel:
    """A draft model that runs: its head has a row for each of `ids` [rows], ascending."""

    model: PreTrainedModel
    ids: Tensor
    target: Target
    layers: tuple[int, ...]


def write_draft(
    folder: Path, tensors: Mapping[str, Tensor], layers: Sequence[int], ids: Tensor, target: Target
) -> None:
    """Fills `folder` with a checkpoint.

    Args:
        tensors: the decoder's trained parameters by name.
        layers: of the target, from which they began.
        ids: target ids [rows] ascending.
        target: what it was trained for.
    """
    offsets = (ids - torch.arange(len(ids))).to(torch.int32)
    stored = {name: t.to(torch.bfloat16).cpu().contiguous() for name, t in tensors.items()}
    parts = _split({**stored, "d2t": offsets})
    names = [_WEIGHTS] if len(parts) == 1 else _part_names(len(parts))
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, {"format": "pt"})
    if len(parts) > 1:
        where = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
        _write_json(folder / _INDEX, {"metadata": {}, "weight_map": where})
    about = {
        "outrider_format": FORMAT,
        "method": METHOD,
        "target": asdict(target),
        "layers": list(layers),
        "draft_vocab_size": len(ids),
    }
    _write_json(folder / "config.json", about)


def is_draft(folder: Path) -> bool:
    """Whether a folder holds such a checkpoint rather than a whole model."""
    try:
        return "outrider_format" in json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def read_draft(folder: Path, target: PreTrainedModel, weights_hash: str | None) -> DraftModel:
    """Builds the draft model from a checkpoint and its target.

    Args:
        folder: what `write_draft` filled.
        target: the target as loaded; embedding and head are copied from it.
        weights_hash: of the target in float32; None leaves it unchecked.

    Raises:
        CheckpointError: naming the file, the field and both values.
    """
    path = folder / "config.json"
    about = _config(path)
    made_for = Target(**about["target"])
    found = Target.of(target, made_for.name, weights_hash or made_for.weights_hash)
    for name, expected in asdict(found).items():
        stored = getattr(made_for, name)
        if stored != expected:
            raise CheckpointError(f"{path}: target.{name} is {stored}, the target's is {expected}")
    try:
        model = layers_of(target, about["layers"])
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    tensors = _tensors(folder)
    ids = _ids(folder, tensors, about["draft_vocab_size"], made_for.vocab_size)
    decoder: nn.Module = model.base_model
    parameters = dict(decoder.named_parameters())
    embeddings = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in decoder.named_modules()
        if isinstance(module, nn.Embedding)
        for name, _ in module.named_parameters()
    }
    for name in sorted((parameters.keys() - embeddings) | tensors.keys()):
        if name not in tensors:
            raise CheckpointError(f"{folder}: {name} is missing")
        if name not in parameters:
            raise CheckpointError(f"{folder}: {name} belongs to no layer of {about['layers']}")
        stored_shape, shape = tuple(tensors[name].shape), tuple(parameters[name].shape)
        if stored_shape != shape:
            raise CheckpointError(f"{folder}: {name} has shape {stored_shape}, the target {shape}")
        if not bool(torch.isfinite(tensors[name]).all()):
            raise CheckpointError(f"{folder}: {name} has values that are not finite")
        parameters[name].data.copy_(tensors[name])
    prune_head(model, ids)
    return DraftModel(model, ids, made_for, tuple(about["layers"]))


def _config(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: is no JSON object")
    for name, expected in (("outrider_format", FORMAT), ("method", METHOD)):
        if about.get(name) != expected:
            raise CheckpointError(f"{path}: {name} is {about.get(name)!r}, limit {expected!r}")
    kinds = {"target": dict, "layers": list, "draft_vocab_size": int}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            raise CheckpointError(f"{path}: {name} is {about.get(name)!r}, no {kind.__name__}")
    if not all(isinstance(layer, int) for layer in about["layers"]):
        raise CheckpointError(f"{path}: layers are {about['layers']}, limit whole numbers")
    fields = set(Target.__dataclass_fields__)
    if set(about["target"]) != fields:
        raise CheckpointError(f"{path}: target has {sorted(about['target'])}, not {sorted(fields)}")
    return about


def _tensors(folder: Path) -> dict[str, Tensor]:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise CheckpointError(f"{folder}: has no safetensors")
    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            with safe_open(path, "pt") as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
    return tensors


def _ids(folder: Path, tensors: dict[str, Tensor], rows: int, vocabulary: int) -> Tensor:
    """Takes d2t out of the tensors; the target ids that it says."""
    if "d2t" not in tensors:
        raise CheckpointError(f"{folder}: d2t is missing")
    offsets = tensors.pop("d2t").long()
    if offsets.shape != (rows,):
        found = tuple(offsets.shape)
        raise CheckpointError(f"{folder}: d2t has shape {found}, draft_vocab_size is {rows}")
    ids = offsets + torch.arange(rows)
    low, high = (int(ids.min()), int(ids.max())) if rows else (0, -1)
    if not rows or low < 0 or high >= vocabulary:
        raise CheckpointError(
            f"{folder}: d2t maps to {low} to {high}, the target's ids are 0 to {vocabulary - 1}"
        )
    if bool((ids.diff() <= 0).any()):
        raise CheckpointError(f"{folder}: d2t maps to ids that do not ascend")
    return ids


def _split(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if parts[-1] and size + tensor.nbytes > FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    return parts


def _part_names(count: int) -> list[str]:
    return [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
