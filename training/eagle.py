"""The learner of an EAGLE-3 head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.models.heads.config import EagleConfig
from outrider.models.heads.eagle_files import save_eagle
from outrider.models.heads.start import start_eagle
from outrider.models.heads.target import TargetParts
from training.acceptance import Acceptance
from training.batches import Batch
from training.head import Head
from training.vocabulary import DraftVocabulary

STEP_WEIGHTS = (1.0, 0.8, 0.64)


@dataclass(frozen=True)
class EagleRecipe:
    """What an EAGLE head is made of.

    Args:
        taps: layers of the target whose input it reads; EAGLE-3's usual three where None.
        dropout: of its layer's branches, while it trains.
        frozen_head: whether the LM head stays the target's rows.
        single: share of the training that unrolls one step; then it is three (training-time test).
    """

    taps: tuple[int, ...] | None = None
    dropout: float = 0.1
    frozen_head: bool = True
    single: float = 0.5


class EagleLearner:
    """Continues the target's features; see `training.learner.Learner`.

    The head pairs the feature of row i with token i + 1 and predicts token i + 2, so a round that
    begins at column m uses row m - 1.
    """

    method = "eagle"
    deepest: int | None = None

    def __init__(
        self,
        target: PreTrainedModel,
        vocabulary: DraftVocabulary,
        parts: TargetParts,
        recipe: EagleRecipe,
    ) -> None:
        self.parts, self.recipe = parts, recipe
        ids = torch.from_numpy(vocabulary.ids)
        # Taps normed each on its own, and the normed output fed back, as EAGLE-3.1 has them.
        config = EagleConfig.for_target(
            target.config, len(ids), recipe.taps, fc_norm=True, norm_output=True
        )
        self.taps: tuple[int, ...] = config.taps
        self.eagle = start_eagle(config, target, ids, recipe.dropout)
        self.eagle.lm_head.requires_grad_(not recipe.frozen_head)
        self._head = Head.of(target, ids)

    @property
    def module(self) -> nn.Module:
        """Everything but the embedding and, where it is frozen, the LM head is trained."""
        return self.eagle

    def to(self, device: torch.device) -> EagleLearner:
        """Moves it to a device."""
        self.eagle.to(device)
        self._head = self._head.to(device)
        return self

    def depth_weights(self, progress: float) -> Sequence[float]:
        """One step at first, then three that are fed with one another's output."""
        return STEP_WEIGHTS[:1] if progress < self.recipe.single else STEP_WEIGHTS

    def states(self, batch: Batch, depth: int) -> Sequence[Tensor]:
        """See `Learner`."""
        unrolled = self.eagle.unroll(batch.ids, batch.taps, depth)
        return [later(self.eagle.head_input(states)) for states in unrolled]

    def head(self, depth: int) -> Head:
        """The same rows at every depth."""
        return self._head.with_weight(self.eagle.lm_head.weight)

    def save(self, folder: Path, found: Acceptance) -> None:
        """The shipped form."""
        save_eagle(folder, self.eagle, self.parts, self.recipe.frozen_head)


def later(states: Tensor) -> Tensor:
    """Column m takes what row m - 1 gave; [b, T, hidden]."""
    return functional.pad(states[:, :-1], (0, 0, 1, 0))
