"""How many rows of prompts a step takes, so that a long prompt does not stall running streams."""

from __future__ import annotations

CHUNK = 8
"""Rows of prompts come in multiples of it, counted from a text's beginning."""
STRETCH = 1.6
"""How much longer than a step without prompts one with prompts may take."""
_DECAY = 0.98  # of what is known of steps without prompts, a step
_RIDGE = 16.0  # rows squared: so much variation it takes to tell a row's time from the others'
_QUICK = 0.5  # in what a prompt's row adds, which grows with the text in front of it


class Pace:
    """Learns from the time of steps how many prompt rows running streams can bear.

    A step without prompts takes a fixed time and some for each row, by decayed least squares: among
    many streams hardly any step is without prompts, and those with few rows say too little of it.

    Args:
        most: rows of prompts in a step that has nothing else to do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = CHUNK
        # Weights, rows, rows squared, seconds, rows times seconds.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._row: float | None = None

    def rows(self, running: bool) -> int:
        """Prompt rows for the next step; `running`: whether streams wait that have begun."""
        return min(self._allowed, self._most) if running else self._most

    def learn(self, seconds: float, prompt_rows: int, rows: int) -> None:
        """Takes note of a step's time: of one without prompts, or of what prompts added to the
        `rows` of running streams."""
        if rows == 0:
            return
        if prompt_rows == 0:
            n, x, xx, y, xy = (value * _DECAY for value in self._sums)
            self._sums = n + 1, x + rows, xx + rows * rows, y + seconds, xy + rows * seconds
        elif self._sums[0]:
            bare = self._bare(rows)
            each = max(0.0, seconds - bare) / prompt_rows
            known = each if self._row is None else self._row
            self._row = known + _QUICK * (each - known)
            borne = (STRETCH - 1) * bare
            most = 2 * self._allowed  # one lucky step is no reason for a long one
            if self._row * most > borne:
                most = int(borne / self._row)
            self._allowed = max(CHUNK, min(most, self._most) // CHUNK * CHUNK)

    def _bare(self, rows: int) -> float:
        """Seconds of a step of `rows` rows without prompts."""
        n, x, xx, y, xy = self._sums
        slope = max(0.0, (n * xy - x * y) / (n * xx - x * x + n * _RIDGE))
        return max(0.0, y / n + slope * (rows - x / n))
