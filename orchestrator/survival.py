"""How likely a draft is kept to each depth: this request's own rounds, shrunk to what is known.

Censoring: a round says something about depth i only if its walk came to i - 1 and the draft was
asked to go further. So c_i = kept_i / tried_i is the chance that depth i is kept where i - 1 was,
and s_i = c_1 ... c_i the survival. A draft that ended early (nothing found, confidence too low)
counts as not kept: what the target time buys is what matters.

Shrinking: c_i = (kept_i + n prior_i) / (tried_i + n), n = `SHAPE` trials. prior_i is the shared
rate of (target, drafter, class) at i, moved by this request's own level: the difference, in
log-odds, between what it kept over all depths (and `LEVEL` usual trials) and what the shared rates
would have kept.

Change: counts decay with every trial. Where recent rounds depart from the estimate by more than
`ALARM` standard deviations, the older ones lose most of their weight at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from outrider.core.tree import TokenTree

SHAPE = 12.0
LEVEL = 12.0  # trials: requests of a class differ by some 0.13 in their rate
LIKE = 6.0  # trials for which the depth before stands in
DECAY = 0.99
RECENT = 0.8
ALARM = 3.0
FORGET = 0.05
DEFAULT = 0.8  # where nothing is known: good enough for speculation to be tried
SIBLING_DECAY = 0.98
LEAST, MOST = 0.001, 0.999


class Counts:
    """Decayed trials per depth; entry 0 is depth 1."""

    def __init__(self, tried: Sequence[float] = (), kept: Sequence[float] = ()) -> None:
        self.tried = list(tried)
        self.kept = list(kept)

    def add(self, asked: int, kept: int, decay: float = 1.0) -> None:
        """Books a round that asked for `asked` depths and kept `kept` of them."""
        reached = min(kept + 1, asked)
        missing = reached - len(self.tried)
        if missing > 0:
            self.tried += [0.0] * missing
            self.kept += [0.0] * missing
        for i in range(reached):
            self.tried[i] = self.tried[i] * decay + 1.0
            self.kept[i] = self.kept[i] * decay + (1.0 if i < kept else 0.0)

    def scale(self, factor: float) -> None:
        """Lets all counts weigh `factor` of what they did."""
        self.tried = [value * factor for value in self.tried]
        self.kept = [value * factor for value in self.kept]

    def rates(self, depth: int) -> list[float]:
        """c_1..c_depth; where a depth was seen little, like the one before it."""
        found, before = [], DEFAULT
        for i in range(depth):
            if i < len(self.tried):
                before = (self.kept[i] + LIKE * before) / (self.tried[i] + LIKE)
            found.append(min(MOST, max(LEAST, before)))
        return found


class Survival:
    """One request's estimate.

    Args:
        shared: trials of all requests, which go on being added to.
        depth: how deep the request may draft.
    """

    def __init__(self, shared: Counts, depth: int) -> None:
        self._shared = shared
        self._depth = depth
        self._own = Counts()
        self._rates = shared.rates(depth)
        self._surprise = 0.0
        self._variance = 0.0
        self._trials = 0.0

    @property
    def trials(self) -> float:
        """Decayed number of trials behind the estimate."""
        return self._trials

    def book(self, asked: int, kept: int) -> None:
        """A round, or a shadow draft, asked for `asked` depths; the target's text kept `kept`."""
        asked, kept = min(asked, self._depth), min(kept, self._depth)
        reached = min(kept + 1, asked)
        if reached == 0:
            return
        expected = self._rates[:reached]
        self._surprise = RECENT * self._surprise + kept - sum(expected)
        self._variance = RECENT * RECENT * self._variance + sum(c * (1.0 - c) for c in expected)
        if self._surprise**2 > ALARM**2 * max(self._variance, 0.5):
            self._own.scale(FORGET)
            self._trials *= FORGET
            self._surprise = self._variance = 0.0
        self._own.add(asked, kept, DECAY)
        self._trials = self._trials * DECAY + reached
        self._rates = self._estimate()

    def age(self, factor: float) -> None:
        """Time went by without a trial: what was learnt weighs `factor` of what it did."""
        if self._trials:
            self._own.scale(factor)
            self._trials *= factor
            self._rates = self._estimate()

    def curve(self) -> list[float]:
        """s_1, s_2, ..., as deep as it may draft."""
        return survival(self._rates)

    def _estimate(self) -> list[float]:
        tried, kept, rates = self._own.tried, self._own.kept, self._shared.rates(self._depth)
        total = sum(tried)
        usual = sum(n * rate for n, rate in zip(tried, rates, strict=False)) / max(total, 1e-9)
        level = (sum(kept) + LEVEL * usual) / (total + LEVEL)
        odds = _odds(level) / _odds(usual)
        found = []
        for i, shared in enumerate(rates):
            moved = odds * _odds(shared)
            prior = moved / (1.0 + moved)
            n, k = (tried[i], kept[i]) if i < len(tried) else (0.0, 0.0)
            found.append((k + SHAPE * prior) / (n + SHAPE))
        return found


class Siblings:
    """How often a further child is kept where the first one was not."""

    def __init__(self) -> None:
        self._caught, self._missed = 1.0, 3.0

    @property
    def rate(self) -> float:
        """The chance."""
        return self._caught / (self._caught + self._missed)

    def book(self, tree: TokenTree, accepted: Sequence[int]) -> int:
        """The walk kept these nodes; returns how many of them are first children from the root on,
        a chain's length."""
        spine = parent = 0
        for node in accepted:
            if tree.children[parent][0] != node:
                break
            spine, parent = spine + 1, node
        if len(tree.children[parent]) > 1:
            hit = spine < len(accepted)
            self._caught = self._caught * SIBLING_DECAY + hit
            self._missed = self._missed * SIBLING_DECAY + (not hit)
        return spine


def _odds(rate: float) -> float:
    rate = min(MOST, max(LEAST, rate))
    return rate / (1.0 - rate)


def survival(rates: Sequence[float]) -> list[float]:
    """s_1, s_2, ... of c_1, c_2, ..."""
    return list(accumulate(rates, mul))
