"""Finds the place where a text begins to repeat itself, while it is written.

Loops inflate acceptance, in what is trained and in what is measured: a drafter that repeats is
right there at no cost.
"""

from __future__ import annotations

import numpy as np

LONGEST = 40


def repeats_needed(period: int) -> int:
    """How often a period must stand in a row to count as a loop: short ones occur in good text."""
    return 8 if period <= 2 else 4 if period <= 5 else 3


class LoopDetector:
    """Told every token; knows for each period how long the text has equalled itself shifted."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._periods = np.arange(1, longest + 1)
        self._needed = np.array([(repeats_needed(p) - 1) * p for p in self._periods.tolist()])
        self._runs = np.zeros(longest, np.int64)
        self._last = np.full(longest, -1, np.int64)

    def add(self, token: int) -> int:
        """How many tokens to cut from the end, this one included; 0 where nothing loops.

        One period stays.
        """
        self._runs = np.where(self._last == token, self._runs + 1, 0)
        self._last[1:] = self._last[:-1]
        self._last[0] = token
        found = np.flatnonzero(self._runs >= self._needed)
        return int(self._needed[found[0]]) if found.size else 0
