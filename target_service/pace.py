"""How many rows of prompts a step takes, so that a long prompt does not stall running streams."""

from __future__ import annotations

CHUNK = 8
"""Rows of prompts come in multiples of it, counted from a text's beginning."""
STRETCH = 1.6
"""How much longer than a step without prompts one with prompts may take."""
_BLEND = 0.1  # of a new measurement in the mean of steps without prompts
_QUICK = 0.5  # in what a prompt's row adds, which grows with the text in front of it


class Pace:
    """Learns from the time of steps how many prompt rows running streams can bear.

    Args:
        most: rows of prompts in a step that has nothing else to do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = CHUNK
        self._bare: float | None = None
        self._row: float | None = None

    def rows(self, running: bool) -> int:
        """Prompt rows for the next step; `running`: whether streams wait that have begun."""
        return min(self._allowed, self._most) if running else self._most

    def learn(self, seconds: float, prompt_rows: int, running: bool) -> None:
        """Takes note of a step's time: of one without prompts, or of what prompts added."""
        if not running:
            return
        if prompt_rows == 0:
            known = seconds if self._bare is None else self._bare
            self._bare = known + _BLEND * (seconds - known)
        elif self._bare is not None:
            each = max(0.0, seconds - self._bare) / prompt_rows
            known = each if self._row is None else self._row
            self._row = known + _QUICK * (each - known)
            borne = (STRETCH - 1) * self._bare
            most = 2 * self._allowed  # one lucky step is no reason for a long one
            if self._row * most > borne:
                most = int(borne / self._row)
            self._allowed = max(CHUNK, min(most, self._most) // CHUNK * CHUNK)
