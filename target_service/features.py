"""Feature rows of one step, as drafters get them: hidden states at the layers that they tap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from outrider.core.round import Features
from target_service.session import Session


class Tapped:
    """The tapped states of all rows of a step; each choice of taps is converted once for all
    sessions.

    Args:
        states: [rows, taps x hidden], the taps in the order of `taps`; None where none is wanted.
    """

    def __init__(self, states: torch.Tensor | None, taps: Sequence[int]) -> None:
        self._states = states
        self._taps = tuple(taps)
        self._bytes: dict[tuple[int, ...], npt.NDArray[np.uint8]] = {}

    def part(
        self, session: Session, first: int, start: int, rows: Sequence[int]
    ) -> Features | None:
        """Feature rows [len(rows), taps x hidden] in bfloat16 of one session, those in front of
        its prompt's window left out; None where it wants none, or none is left.

        Args:
            first: the step's row with which the session's begin; `rows` count from it.
            start: the text's row that the first of `rows` stands for.
        """
        wanted = session.features
        if wanted is None or self._states is None or not set(wanted.taps) <= set(self._taps):
            return None  # the last where they were asked for while the step was under way
        if session.round == 0 and wanted.window:
            skip = max(0, len(session.tokens) - wanted.window - start)
            rows, start = rows[skip:], start + skip
        if not rows:
            return None
        chosen = self._of(wanted.taps)
        data = chosen[[first + row for row in rows]].tobytes()
        return Features(start, len(rows), chosen.shape[1] // 2, data)

    def _of(self, taps: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        if taps not in self._bytes:
            assert self._states is not None
            width = self._states.shape[1] // len(self._taps)
            states = self._states.to(torch.bfloat16)
            places = [self._taps.index(tap) * width for tap in taps]
            chosen = torch.cat([states[:, at : at + width] for at in places], dim=1)
            self._bytes[taps] = chosen.contiguous().view(torch.uint8).cpu().numpy()
        return self._bytes[taps]
