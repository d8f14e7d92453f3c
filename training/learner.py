"""What the trainer asks of a drafter that is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from training.acceptance import Acceptance
from training.batches import Batch
from training.head import Head
from training.losses import probabilities, soft_cross_entropy
from training.precision import autocast


class Learner(Protocol):
    """A drafter in training.

    A round begins at column m: tokens 0..m are verified, and the target's features exist for rows
    0..m-1. At depth j (from 0) the drafter proposes token m+1+j, given that it was right before.
    """

    method: str
    taps: tuple[int, ...]
    """Layers of the target whose input it reads; none where the ids are enough."""
    deepest: int | None
    """Depths that it has at most; None where there is no limit."""

    @property
    def module(self) -> nn.Module:
        """What is trained: its parameters that ask for a gradient."""
        ...

    def depth_weights(self, progress: float) -> Sequence[float]:
        """Weights of the depths in the loss when `progress` (0 to 1) of the training is done."""
        ...

    def states(self, batch: Batch, depth: int) -> Sequence[Tensor]:
        """States [b, T, hidden] of each depth below `depth`: column m of entry j is what the head
        takes to propose token m+1+j. Columns for which that token does not exist hold anything."""
        ...

    def head(self, depth: int) -> Head:
        """The draft head of a depth."""
        ...

    def save(self, folder: Path, found: Acceptance) -> None:
        """Writes a checkpoint that the draft service loads; `found` was measured of it."""
        ...


def trained(learner: Learner) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    named = learner.module.named_parameters()
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def columns(batch: Batch, depth: int) -> Tensor:
    """Mask [b, T] of the columns that propose a token of the text at `depth`.

    Column 0 is none: before it there are no features.
    """
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    return (place >= 1) & (place + 1 + depth < batch.lengths[:, None])


def batch_loss(
    learner: Learner, batch: Batch, progress: float, prompt_weight: float, teacher_head: Head
) -> Tensor:
    """The loss of a batch, a scalar: the mean over depths of soft cross entropies.

    Args:
        progress: 0 to 1, of the training.
        prompt_weight: of tokens of the prompt; those of the response have 1.
        teacher_head: the target's rows for the draft vocabulary, in the format that products shall
            have.
    """
    weights = learner.depth_weights(progress)
    with autocast(batch.ids.device, teacher_head.weight.dtype):
        states = learner.states(batch, len(weights))
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    of_token = torch.where(place + 1 < batch.prompt_lengths[:, None], prompt_weight, 1.0)
    row, at = (of_token * columns(batch, 0)).nonzero(as_tuple=True)
    teacher = probabilities(teacher_head, batch.final[row, at])
    of_token = of_token[row, at]
    total = batch.final.new_zeros(())
    for depth, (weight, drafted) in enumerate(zip(weights, states, strict=True)):
        rounds = at - depth >= 1
        if not bool(rounds.all()):  # else it would be a copy of it all
            row, at, teacher, of_token = (x[rounds] for x in (row, at, teacher, of_token))
        drafts = drafted[row, at - depth]
        total = total + weight * soft_cross_entropy(drafts, learner.head(depth), teacher, of_token)
    return total / sum(weights)
