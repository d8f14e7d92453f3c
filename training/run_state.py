"""What a training needs to go on to the bit: tensors, optimiser, random numbers, position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outrider.files import replace
from outrider.models.heads.record import read_tensors
from training.files import TrainingError, read_json
from training.precision import FLOAT32


@dataclass
class RunState:
    """Where a training is.

    Args:
        step: updates done. epoch, batch: of the next one.
        elapsed: seconds of the updates alone.
        evaluated: measurements that were due so far.
        loss_tokens: tokens of all batches.
        best, best_score: folder of the best checkpoint, and its acceptance length.
        losses: of the steps since the last point of `curve`, whose points are [step, s, loss].
        history: what each measurement found.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    elapsed: float = 0.0
    evaluated: int = 0
    loss_tokens: int = 0
    best: str = ""
    best_score: float = 0.0
    losses: list[float] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For people and reports."""
        return {name: value for name, value in asdict(self).items() if name != "losses"}


def save_state(
    path: Path,
    state: RunState,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> None:
    """Writes everything at once, or nothing."""
    content = {
        "run": asdict(state),
        "parameters": {name: tensor.detach().cpu() for name, tensor in parameters.items()},
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    replace(path, lambda temporary: torch.save(content, temporary))


def load_state(
    path: Path,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | None,
    device: torch.device,
) -> RunState:
    """Takes up what `save_state` wrote; without an optimiser the parameters alone.

    Raises:
        TrainingError: it is of another model, or no state.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        stored = content["parameters"]
    except (OSError, RuntimeError, KeyError, ValueError, EOFError) as error:
        raise TrainingError(f"{path}: is no state of a training: {error}") from error
    for name, parameter in parameters.items():
        shape = stored[name].shape if name in stored else None
        if shape != parameter.shape:
            found = None if shape is None else tuple(shape)
            raise TrainingError(f"{path}: {name} is {found}, wanted {tuple(parameter.shape)}")
        parameter.data.copy_(stored[name])
    if optimizer is not None:
        optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"])
        if content["device_random"] is not None and device.type == "cuda":
            torch.cuda.set_rng_state(content["device_random"], device)
    return RunState(**content["run"])


def begun_with(folder: Path) -> str | None:
    """The precision of the training in a folder; None where there is none."""
    path = folder / "run.json"
    if not path.exists():
        return None
    precision: str = read_json(path)["options"].get("precision", FLOAT32)
    return precision


def load_trained(folder: Path, parameters: dict[str, Tensor]) -> None:
    """Puts the trained tensors of a run's folder, or of a checkpoint, into `parameters`, to start
    another training from.

    Raises:
        TrainingError: they are of another model, or there are none.
    """
    state = folder / "state.pt"
    if state.exists():
        load_state(state, parameters, None, torch.device("cpu"))
        return
    files = sorted(folder.glob("*.safetensors"))
    stored = {name: tensor for file in files for name, tensor in read_tensors(file).items()}
    for name, parameter in parameters.items():
        shape = tuple(stored[name].shape) if name in stored else None
        if shape != tuple(parameter.shape):
            raise TrainingError(f"{folder}: {name} is {shape}, wanted {tuple(parameter.shape)}")
        parameter.data.copy_(stored[name])
