"""Feature rows of a session by position, until a head has taken them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from outrider.core.round import Features


class FeatureRows:
    """Rows [width] of the target's hidden states, kept in the bfloat16 that they came in."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: dict[int, npt.NDArray[np.uint16]] = {}

    def __contains__(self, position: int) -> bool:
        return position in self._rows

    @property
    def first(self) -> int | None:
        """The earliest position that is here."""
        return min(self._rows, default=None)

    def latest(self, position: int) -> int | None:
        """The latest position up to `position` that is here."""
        return max((p for p in self._rows if p <= position), default=None)

    def add(self, features: Iterable[Features], from_: int = 0) -> None:
        """Keeps rows from position `from_` on; rows of another width belong to another drafter."""
        for part in features:
            if part.width != self._width:
                continue
            rows = np.frombuffer(part.data, np.uint16).reshape(part.rows, part.width)
            for position, row in enumerate(rows, part.start):
                if position >= from_:
                    self._rows[position] = row

    def forget(self, before: int) -> None:
        """Drops the rows of all positions below `before`."""
        for position in [p for p in self._rows if p < before]:
            del self._rows[position]

    def take(self, start: int, end: int) -> npt.NDArray[np.float32]:
        """Rows of positions `start` to `end`, which must be here: [end - start, width]."""
        rows = np.stack([self._rows[position] for position in range(start, end)])
        wide: npt.NDArray[np.float32] = (rows.astype(np.uint32) << 16).view(np.float32)
        return wide
