"""A language model small enough to reason about.

Its logits are a pure function of all cached tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from outrider.models.numerics import Numerics


@dataclass
class FakeCache:
    tokens: list[int] = field(default_factory=list)
    freed: bool = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    def keep(self, length: int, rows: Sequence[int]) -> None:
        self.tokens = self.tokens[:length] + [self.tokens[row] for row in rows]

    def free(self) -> None:
        self.freed = True


@dataclass
class FakeHidden:
    states: torch.Tensor  # [rows, 1]: an index into the contexts that were seen


class FakeModel:
    """Logits depend on the whole context, so a stale or missing row changes what is proposed."""

    name = "fake"
    numerics = Numerics("w", "float32", "none", "fake")
    context_length = 64

    def __init__(self, vocab_size: int = 32, sharpness: float = 2.0) -> None:
        self.vocab_size = vocab_size
        self.forwards: list[list[int]] = []
        self._sharpness = sharpness
        self._contexts: list[tuple[int, ...]] = []

    def new_cache(self) -> FakeCache:
        return FakeCache()

    def forward(self, segments: Sequence, taps: Sequence[int] = ()) -> FakeHidden:
        self.forwards.append([len(segment.tokens) for segment in segments])
        rows = []
        for segment in segments:
            contexts = [tuple(segment.cache.tokens)]
            for token, parent in zip(segment.tokens, segment.parents, strict=True):
                contexts.append((*contexts[parent + 1], token))
                assert len(contexts[-1]) <= self.context_length
                segment.cache.tokens.append(token)
                rows.append(len(self._contexts))
                self._contexts.append(contexts[-1])
        return FakeHidden(torch.tensor(rows).unsqueeze(1))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(
            np.stack([self.of(self._contexts[i]) for i in states[:, 0].tolist()])
        )

    def of(self, context: Sequence[int]) -> np.ndarray:
        """Logits [V] behind `context`."""
        rng = np.random.default_rng(list(context))
        return (self._sharpness * rng.standard_normal(self.vocab_size)).astype(np.float32)
