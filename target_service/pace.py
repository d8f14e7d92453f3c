"""How many rows of prompts a step takes, so that a long prompt does not stall running streams."""

from __future__ import annotations

CHUNK = 16
"""Rows of prompts come in multiples of it, counted from a text's beginning."""
STRETCH = 2.2
"""How much longer than a step without prompts one with prompts may take."""
_BLEND = 0.1  # of a new measurement in the mean


class Pace:
    """Learns from the time of steps how many prompt rows running streams can bear.

    Args:
        most: rows of prompts in a step that has nothing else to do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = CHUNK
        self._bare: float | None = None

    def rows(self, running: bool) -> int:
        """Prompt rows for the next step; `running`: whether streams that have begun take part."""
        return min(self._allowed, self._most) if running else self._most

    def learn(self, seconds: float, prompt_rows: int, running: bool) -> None:
        """Takes note of a step's time: of one without prompts, or of what prompts added."""
        if not running:
            return
        if prompt_rows == 0:
            known = seconds if self._bare is None else self._bare
            self._bare = known + _BLEND * (seconds - known)
        elif self._bare is not None:
            if seconds > STRETCH * self._bare:
                self._allowed = max(CHUNK, self._allowed // 2 // CHUNK * CHUNK)
            elif prompt_rows >= self._allowed and seconds < 0.7 * STRETCH * self._bare:
                self._allowed = min(self._most, self._allowed + CHUNK)
