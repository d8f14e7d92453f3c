"""When the tokens of one text arrived, and the rates that follow.

Only the standard library: engines that run in an interpreter of their own import it, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Arrivals:
    """Token ids in the order in which they came, some of them together.

    Args:
        started: when the text was asked for; seconds of any clock, as `times`.
        times: when each arrival came.
        counts: how many tokens each of them brought, 1 or more.
        ids: the tokens.
    """

    started: float
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @classmethod
    def begin(cls) -> Arrivals:
        """A text that is asked for now."""
        return cls(time.perf_counter())

    def add(self, ids: Sequence[int]) -> None:
        """Books tokens that came just now; none are no arrival."""
        if ids:
            self.times.append(time.perf_counter())
            self.counts.append(len(ids))
            self.ids.extend(ids)

    @property
    def first_token_s(self) -> float:
        """Seconds from the request to the first arrival."""
        return self.times[0] - self.started

    @property
    def later_tokens(self) -> int:
        """Tokens behind the first arrival."""
        return sum(self.counts[1:])

    @property
    def later_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.times[-1] - self.times[0]

    def gaps(self) -> list[tuple[float, float]]:
        """(when it ended, seconds) between each arrival and the one before."""
        return [(after, after - before) for before, after in pairwise(self.times)]


def decode_rate(texts: Sequence[Arrivals]) -> float:
    """Tokens a second behind the first arrival, over all texts.

    Raises:
        ValueError: no text has a second arrival.
    """
    seconds = sum(text.later_s for text in texts)
    if not seconds:
        raise ValueError("texts: none has tokens behind its first arrival")
    return sum(text.later_tokens for text in texts) / seconds


def steady_rate(texts: Sequence[Arrivals]) -> float:
    """Tokens a second of texts that run side by side, while all of them run.

    The window opens when the last of them has its first arrival and closes when the first of them
    has its last.

    Raises:
        ValueError: they never ran all at once.
    """
    opens = max(text.times[0] for text in texts)
    closes = min(text.times[-1] for text in texts)
    if closes <= opens:
        raise ValueError("texts: they never run all at once; ask for more tokens")
    within = sum(
        count
        for text in texts
        for when, count in zip(text.times, text.counts, strict=True)
        if opens < when <= closes
    )
    return within / (closes - opens)
