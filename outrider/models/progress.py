"""What those who fetch and convert models tell their callers: progress, and why there is none."""

from __future__ import annotations

from typing import Protocol


class ModelSpecError(ValueError):
    """A model cannot be had; the message names the spec and says why."""


class Progress(Protocol):
    """Told what happens while a model is fetched or converted.

    `done` of `total` in bytes or steps.
    """

    def __call__(self, stage: str, done: float, total: float) -> None: ...


def silent(stage: str, done: float, total: float) -> None:
    """Progress that nobody watches."""
