"""The few likeliest tokens of rows of logits, in order: what a drafter proposes first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.core.compiled import kernel, parallel, prange
from outrider.core.weights import total_weight

Values = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
LANES = 16
BLOCK = 8 * LANES


def ranked(logits: Values, count: int) -> tuple[Places, Scores]:
    """Of each row of logits [rows, n] the places and log probabilities [rows, `count`], at most n,
    of the likeliest, best first; of equals the first.

    Raises:
        ValueError: a row's logits give no law.
    """
    places = np.empty((len(logits), min(count, logits.shape[1])), np.int64)
    scores = np.empty(places.shape)
    _rank(np.ascontiguousarray(logits), places, scores)
    if not np.isfinite(scores[:, :1]).all():
        peaks = logits.max(axis=1).tolist()
        raise ValueError(f"logits: the greatest of each row are {peaks}, limit finite")
    return places, scores


@parallel
def _rank(logits: Values, places: Places, scores: Scores) -> None:
    for row in prange(logits.shape[0]):
        own = logits[row]
        _find(own, places[row])
        peak = np.float64(own[places[row, 0]])
        most = peak + np.log(total_weight(own, peak))
        for i in range(places.shape[1]):
            scores[row, i] = min(np.float64(own[places[row, i]]) - most, 0.0)


@kernel
def _find(values: Values, places: Places) -> None:
    """Greatest values of blocks, then the best block's best place, as often as there are places."""
    size = values.shape[0]
    blocks = (size + BLOCK - 1) // BLOCK
    tops = np.empty(blocks, values.dtype)
    lanes = np.empty(LANES, values.dtype)
    for block in range(blocks):
        first = block * BLOCK
        if first + BLOCK <= size:
            for lane in range(LANES):
                lanes[lane] = values[first + lane]
            for row in range(first + LANES, first + BLOCK, LANES):
                for lane in range(LANES):
                    value = values[row + lane]
                    lanes[lane] = value if value > lanes[lane] else lanes[lane]
            top = lanes[0]
            for lane in range(1, LANES):
                top = lanes[lane] if lanes[lane] > top else top
        else:
            top = values[first]
            for place in range(first + 1, size):
                top = values[place] if values[place] > top else top
        tops[block] = top
    for found in range(places.shape[0]):
        best = 0
        for block in range(1, blocks):
            if tops[block] > tops[best]:
                best = block
        place, following = _split(
            values, best * BLOCK, min((best + 1) * BLOCK, size), places[:found]
        )
        places[found] = place
        tops[best] = following


@kernel
def _split(values: Values, first: int, end: int, taken: Places) -> tuple[int, float]:
    """The best place from first to end that is not taken, and the greatest value of the others
    there; minus infinity where there is none."""
    place, best = -1, -np.inf
    following = -np.inf
    for here in range(first, end):
        free = True
        for other in taken:
            free = free and other != here
        if not free:
            continue
        if place < 0 or values[here] > best:
            if place >= 0:
                following = max(following, best)
            place, best = here, values[here]
        else:
            following = max(following, values[here])
    return place, following
