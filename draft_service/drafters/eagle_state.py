"""What an EAGLE drafter keeps of a session: its cache, and the feature rows that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from draft_service.drafters.choose import Choose
from draft_service.drafters.feature_rows import FeatureRows
from draft_service.drafters.rank import Rank
from outrider.models.heads.rows import Cache, EagleRunner, Rows


@dataclass
class EagleState:
    """Row r of the cache pairs the feature of position `start` + r with the token behind it.

    Rows in front of the first feature that came are left out: rotary positions are relative.

    known: of each committed row whether it had the target's feature, not the head's own.
    g, states: what the last committed row gave, [1, hidden] each; None before the first.
    """

    runner: EagleRunner
    choose: Choose
    rank: Rank
    features: FeatureRows
    cache: Cache = field(init=False)
    start: int | None = None
    known: list[bool] = field(default_factory=list)
    g: Tensor | None = None
    states: Tensor | None = None

    def __post_init__(self) -> None:
        self.cache = self.runner.new_cache()

    def sync(self) -> None:
        """Drops drafted rows, and the head's own where the target's features have come since."""
        start, rows = self.start or 0, len(self.known)
        while rows and not self.known[rows - 1]:
            rows -= 1
        late = (r for r in range(rows, len(self.known)) if start + r in self.features)
        rows = next(late, len(self.known))
        if rows < len(self.known):
            del self.known[rows:]
            self.g = self.states = None
        if self.cache.length > rows:
            self.cache.keep(rows)
        if self.start is not None:
            self.features.forget(self.start + rows)

    def waiting(self, tokens: Sequence[int]) -> bool:
        """Whether committed tokens have no row yet; not before the first feature is there."""
        if self.start is None:
            self.start = self.features.first
        return self.start is not None and self.start + len(self.known) < len(tokens) - 1

    def next_rows(self, tokens: Sequence[int], most: int | None, guess: bool) -> Rows | None:
        """The next rows that are all with features, or all without.

        Args:
            tokens: all committed tokens.
            most: rows at once; any number where None.
            guess: whether rows without features are due, fed with the head's last output.
        """
        if not self.waiting(tokens):
            return None
        assert self.start is not None
        first = self.start + len(self.known)
        last = len(tokens) - 1
        if most is not None:
            last = min(last, first + most)
        has = first in self.features
        if not has and not guess:
            return None
        end = first + 1
        while end < last and (end in self.features) == has:
            end += 1
        if has:
            g = self.runner.fuse(self.features.take(first, end))
        else:  # the first row has a feature, and what is dropped later has one instead
            assert self.g is not None
            g = self.g.expand(end - first, -1)
        return Rows(self.cache, tokens[first + 1 : end + 1], g)

    def took(self, rows: Rows, g: Tensor, states: Tensor) -> None:
        """Records that `rows` were run, and what they gave [rows, hidden]."""
        first = (self.start or 0) + len(self.known)
        self.known += [first in self.features] * len(rows.tokens)
        self.g, self.states = g[-1:].clone(), states[-1:].clone()
        self.features.forget(first + len(rows.tokens))
