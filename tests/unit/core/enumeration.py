"""Runs a function of random choices through every outcome: its law is summed up, not sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence


class Chooser:
    """Answers random choices along one path; the paths together cover all outcomes with mass."""

    def __init__(self, path: Sequence[int]) -> None:
        self.path = list(path)
        self.weight = 1.0
        self.seen: list[list[float]] = []

    def choose(self, weights: Sequence[float]) -> int:
        """An outcome with its share of the weights."""
        shares = [float(weight) / float(sum(weights)) for weight in weights]
        place = len(self.seen)
        self.seen.append(shares)
        if place == len(self.path):
            self.path.append(next(i for i, share in enumerate(shares) if share > 0))
        self.weight *= shares[self.path[place]]
        return self.path[place]

    def draw(self, p: Sequence[float], uniform: object) -> int:
        """Stands for `draw(p, uniform)`."""
        return self.choose(list(p))

    def uniform(self) -> Uniform:
        """Stands for a number in [0, 1) that is compared once, scaled or not."""
        return Uniform(self)


class Uniform:
    """`self * scale < limit` holds with the chance that it has for a uniform number."""

    def __init__(self, chooser: Chooser, scale: float = 1.0) -> None:
        self._chooser, self._scale = chooser, scale

    def __mul__(self, scale: float) -> Uniform:
        return Uniform(self._chooser, self._scale * float(scale))

    def __lt__(self, limit: float) -> bool:
        chance = 1.0 if self._scale == 0 else min(1.0, float(limit) / self._scale)
        return self._chooser.choose([1 - chance, chance]) == 1


def _paths(run: Callable[[Chooser], Hashable]) -> Iterator[tuple[Hashable, float]]:
    path: list[int] | None = []
    while path is not None:
        chooser = Chooser(path)
        outcome = run(chooser)
        yield outcome, chooser.weight
        path = _after(chooser)


def _after(chooser: Chooser) -> list[int] | None:
    for place in reversed(range(len(chooser.path))):
        shares = chooser.seen[place]
        later = [i for i in range(chooser.path[place] + 1, len(shares)) if shares[i] > 0]
        if later:
            return [*chooser.path[:place], later[0]]
    return None


def law_of(run: Callable[[Chooser], Hashable]) -> dict[Hashable, float]:
    """The exact law of what `run` returns."""
    law: defaultdict[Hashable, float] = defaultdict(float)
    for outcome, weight in _paths(run):
        law[outcome] += weight
    return dict(law)
