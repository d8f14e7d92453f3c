"""What drafters with a trained checkpoint share: where it is, and how it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from draft_service.drafters.setup import Setup
from outrider.core.round import Budget, Features, SamplingParams
from outrider.drafting.base import Drafter
from outrider.drafting.specs import DrafterRefused, default_checkpoint
from outrider.models.heads.record import CheckpointError


def checkpoint_of(method: str, path: str | None, setup: Setup) -> Path:
    """The folder of NAME=PATH, or of the target's default checkpoint.

    Raises:
        DrafterRefused: there is none.
    """
    folder = default_checkpoint(method, setup.target) if path is None else Path(path).expanduser()
    if folder is None:
        raise DrafterRefused(
            f"drafter {method} needs a path ({method}=PATH) for target {setup.target}"
        )
    if not folder.is_dir():
        raise DrafterRefused(f"drafter {method}: {str(folder)!r} is no directory")
    return folder


def linears_of(setup: Setup) -> torch.dtype:
    """Of a head's linears on a CPU: int8, whose errors cost acceptance only; float32 if asked."""
    return torch.float32 if setup.dtype == "float32" else torch.int8


@contextmanager
def refused() -> Iterator[None]:
    """Turns what is wrong with a checkpoint into a refusal of its drafter."""
    try:
        yield
    except CheckpointError as error:
        raise DrafterRefused(str(error)) from error


def warm_up(drafter: Drafter, width: int) -> None:
    """Runs a drafter on features of `width`, without which it would not compute at all: the first
    request then finds its kernels."""
    session = drafter.open([0, 0, 0], SamplingParams(temperature=0.0))
    drafter.observe(session, [], [Features(0, 2, width, bytes(4 * width))])
    drafter.prefill(session)
    for nodes in (2, 4):
        drafter.propose([(session, Budget(2, nodes))])
    drafter.close(session)
