"""Reading a checkpoint's files: what is wrong is named with its file, field and values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message names file, field, value and limit."""


class Record:
    """An object of a JSON file."""

    def __init__(self, file: Path, fields: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self.fields = fields
        self._prefix = prefix

    @classmethod
    def read(cls, file: Path) -> Record:
        """The object in `file`.

        Raises:
            CheckpointError: it is missing, or no JSON object.
        """
        try:
            fields = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file}: cannot be read as JSON: {error}") from error
        if not isinstance(fields, dict):
            raise CheckpointError(f"{file}: holds a {type(fields).__name__}, expected an object")
        return cls(file, fields)

    def refuse(self, field: str, value: object, limit: object) -> CheckpointError:
        """The error for a field whose value is not within its limit."""
        return CheckpointError(f"{self.file}: {self._prefix}{field} is {value}, limit {limit}")

    def value(self, field: str, kind: type, default: Any = ...) -> Any:
        """The field, which must be of type `kind`; `default` where it is missing.

        Raises:
            CheckpointError: it is of another type, or missing without a default.
        """
        found = self.fields.get(field, ...)
        if found is ... or (found is None and default is not ...):
            if default is ...:
                raise CheckpointError(f"{self.file}: {self._prefix}{field} is missing")
            return default
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise self.refuse(field, repr(found), f"a {kind.__name__}")
        return found

    def integer(self, field: str, low: int, high: float = math.inf, default: Any = ...) -> int:
        """A whole number from `low` to `high`."""
        found: int = self.value(field, int, default)
        if not low <= found <= high:
            raise self.refuse(field, found, f"{low} to {high}")
        return found

    def equal(self, field: str, expected: object, whose: str) -> None:
        """Refuses a field that differs from what `whose` has."""
        found = self.value(field, type(expected))
        if found != expected:
            raise CheckpointError(
                f"{self.file}: {self._prefix}{field} is {found}, of {whose} {expected}; "
                "they must be equal"
            )

    def inner(self, field: str) -> Record:
        """An object within this one."""
        return Record(self.file, self.value(field, dict), f"{self._prefix}{field}.")


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, none of them with a NaN or an infinity.

    Raises:
        CheckpointError: it is missing, truncated or damaged, or a weight is not finite.
    """
    if not file.is_file():
        raise CheckpointError(f"{file}: there is no such file")
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{file}: {file.stat().st_size} bytes, truncated or damaged: {error}"
        ) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            bad = tensor.flatten()[~torch.isfinite(tensor.flatten())][0].item()
            raise CheckpointError(f"{file}: {name} has the weight {bad}, limit finite")
    return tensors


def take(tensors: Mapping[str, Tensor], file: Path, name: str, shape: Sequence[int]) -> Tensor:
    """The tensor `name`, which must have this shape.

    Raises:
        CheckpointError: it is missing or has another.
    """
    if name not in tensors:
        raise CheckpointError(f"{file}: tensor {name} is missing")
    if list(tensors[name].shape) != list(shape):
        raise CheckpointError(
            f"{file}: tensor {name} has the shape {list(tensors[name].shape)}, limit {list(shape)}"
        )
    return tensors[name]


def read_draft_ids(
    tensors: Mapping[str, Tensor], file: Path, draft_vocab: int, vocab: int
) -> Tensor:
    """Target ids [draft vocabulary] from the offsets in d2t; all of them in order where the head
    covers the whole vocabulary.

    Raises:
        CheckpointError: d2t is missing, of another length or type, not ascending, or out of range;
            or t2d says something else.
    """
    if "d2t" not in tensors and draft_vocab == vocab:
        return torch.arange(vocab)
    offsets = take(tensors, file, "d2t", [draft_vocab])
    if offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise CheckpointError(f"{file}: d2t is of {offsets.dtype}, limit whole numbers")
    ids = torch.arange(draft_vocab) + offsets.long()
    outside = (ids < 0) | (ids >= vocab)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise CheckpointError(
            f"{file}: d2t gives row {row} the target id {int(ids[row])}, limit 0 to {vocab - 1}"
        )
    falling = (ids[1:] <= ids[:-1]).nonzero()
    if len(falling):
        row = int(falling[0]) + 1
        raise CheckpointError(
            f"{file}: d2t gives row {row} the target id {int(ids[row])}, limit above the "
            f"{int(ids[row - 1])} of row {row - 1}"
        )
    if "t2d" in tensors:
        given = take(tensors, file, "t2d", [vocab]).bool()
        expected = torch.zeros(vocab, dtype=torch.bool)
        expected[ids] = True
        if not torch.equal(given, expected):
            wrong = int((given != expected).nonzero()[0])
            raise CheckpointError(
                f"{file}: t2d of id {wrong} is {bool(given[wrong])}, of d2t {bool(expected[wrong])}"
            )
    return ids


def fill(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    file: Path,
    rebuilt: Mapping[str, Tensor],
    ignored: Sequence[str] = (),
) -> None:
    """Puts every parameter of `module` in place, from the file or else from `rebuilt`.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or has no place in the module.
    """
    parameters = dict(module.named_parameters())
    for name in tensors:
        if name not in parameters and not name.startswith(tuple(ignored)):
            raise CheckpointError(f"{file}: tensor {name} has no place in this layout")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if name in rebuilt and name not in tensors:
                parameter.copy_(rebuilt[name])
            else:
                parameter.copy_(take(tensors, file, name, parameter.shape))
