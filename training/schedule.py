"""The learning rate, and how far a training is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from training.files import TrainingError
from training.precision import DTYPES, FLOAT32


@dataclass(frozen=True)
class Options:
    """How a drafter is trained.

    Args:
        steps, seconds: the budget; exactly one of them is given.
        lr: peak of the learning rate, after `warmup` steps; a cosine takes it to `floor` of that.
        rows: of a batch, padding included. Small ones with a high rate do best in short trainings.
        longest: tokens of a sequence that are used.
        prompt_weight: of prompt tokens in the loss.
        clip: limit of the gradient's norm.
        evaluations: how often acceptance is measured, evenly over the budget.
        checkpoint_s: seconds between two states that a killed training goes on from.
        seed: of the order and of dropout.
        precision: format of the products, float32 or bfloat16.
    """

    steps: int | None = None
    seconds: float | None = None
    lr: float = 1.5e-3
    warmup: int = 25
    floor: float = 0.05
    rows: int = 1000
    longest: int = 768
    prompt_weight: float = 1.0
    clip: float = 0.5
    evaluations: int = 12
    checkpoint_s: float = 60.0
    seed: int = 0
    precision: str = FLOAT32

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise TrainingError("steps and seconds: exactly one of them is needed")
        for name in ("steps", "seconds", "lr", "rows", "longest", "clip", "evaluations"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise TrainingError(f"{name}: {value}, limit above 0")
        if self.precision not in DTYPES:
            known = ", ".join(DTYPES)
            raise TrainingError(f"precision: {self.precision!r}, limit one of {known}")

    def progress(self, step: int, elapsed: float) -> float:
        """Share of the budget that is used, at most 1."""
        used = step / self.steps if self.steps else elapsed / (self.seconds or 1.0)
        return min(1.0, used)

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        cosine = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))
        return self.lr * warm * cosine

    def to_json(self) -> dict[str, Any]:
        """As the run's file tells it."""
        return asdict(self)


def make_optimizer(parameters: Iterable[nn.Parameter], options: Options) -> torch.optim.AdamW:
    """AdamW without weight decay; the rate is set at each step."""
    return torch.optim.AdamW(
        list(parameters), options.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
