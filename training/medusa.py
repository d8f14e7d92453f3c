"""The learner of Medusa heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.models.heads.config import MedusaConfig
from outrider.models.heads.medusa_files import save_medusa
from outrider.models.heads.start import start_medusa
from outrider.models.heads.target import TargetParts
from training.acceptance import Acceptance
from training.batches import Batch
from training.eagle import later
from training.head import Head
from training.vocabulary import DraftVocabulary

DECAY = 0.8


class MedusaLearner:
    """Heads that share the target's own LM head rows; see `training.learner.Learner`.

    The state of row i gave token i + 1; head k predicts token i + 2 + k, so a round that begins at
    column m uses row m - 1.
    """

    method = "medusa"
    taps: tuple[int, ...] = ()

    def __init__(
        self,
        target: PreTrainedModel,
        vocabulary: DraftVocabulary,
        parts: TargetParts,
        heads: int = 4,
        layers: int = 1,
        root_embedding: bool = True,
    ) -> None:
        self.parts = parts
        ids = torch.from_numpy(vocabulary.ids)
        text = target.config.get_text_config()
        shape = text.hidden_size, text.vocab_size, len(ids), heads, layers
        config = MedusaConfig(*shape, root_embedding=root_embedding)
        self.deepest: int | None = heads
        self.medusa = start_medusa(config, target, ids)
        self._head = Head.of(target, ids)

    @property
    def module(self) -> nn.Module:
        """Blocks and what reads the root are trained; embedding and shared LM head are not."""
        return self.medusa

    def to(self, device: torch.device) -> MedusaLearner:
        """Moves it to a device."""
        self.medusa.to(device)
        self._head = self._head.to(device)
        return self

    def depth_weights(self, progress: float) -> Sequence[float]:
        """0.8^k."""
        return tuple(DECAY**k for k in range(self.medusa.config.heads))

    def states(self, batch: Batch, depth: int) -> Sequence[Tensor]:
        """See `Learner`."""
        roots = torch.roll(batch.ids, -1, dims=1)  # the last column has none, and is not used
        return [later(z) for z in self.medusa(batch.final, roots)[:depth]]

    def head(self, depth: int) -> Head:
        """The same rows for all heads."""
        return self._head

    def save(self, folder: Path, found: Acceptance) -> None:
        """The shipped form, with the accuracies that were measured: the tree is built on them."""
        self.medusa.config = replace(self.medusa.config, accuracies=found.accuracies)
        save_medusa(folder, self.medusa, self.parts, frozen_head=True)
