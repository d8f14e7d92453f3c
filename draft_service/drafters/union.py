"""Features for several drafters at once: what to ask the target for, and each one's share of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.core.round import Features
from outrider.drafting.base import FeatureSpec


def union(specs: Sequence[FeatureSpec | None]) -> FeatureSpec | None:
    """The taps of all, ascending unless one asks alone, and the widest window."""
    wanted = [spec for spec in specs if spec is not None]
    if not wanted:
        return None
    if all(spec.taps == wanted[0].taps for spec in wanted):
        taps = wanted[0].taps
    else:
        taps = tuple(sorted({tap for spec in wanted for tap in spec.taps}))
    windows = [spec.window for spec in wanted]
    return FeatureSpec(taps, 0 if 0 in windows else max(windows))


def narrowed(
    features: Sequence[Features], given: FeatureSpec | None, wanted: FeatureSpec | None
) -> Sequence[Features]:
    """The columns of `wanted` out of rows that have those of `given`, in the order asked for."""
    if wanted is None or given is None:
        return ()
    if wanted.taps == given.taps:
        return features
    places = [given.taps.index(tap) for tap in wanted.taps]
    return [_columns(part, len(given.taps), places) for part in features]


def _columns(part: Features, taps: int, places: Sequence[int]) -> Features:
    """Rows [rows, len(places) x hidden] of rows [rows, taps x hidden], bit for bit."""
    hidden = part.width // taps
    rows = np.frombuffer(part.data, dtype=np.uint16).reshape(part.rows, taps, hidden)
    chosen = np.ascontiguousarray(rows[:, list(places)])
    return Features(part.start, part.rows, len(places) * hidden, chosen.tobytes())
