"""Lines of one tile against keys or values: sums that stay in registers, and softmax's weights."""

from __future__ import annotations

import numpy as np

from outrider.core.compiled import fused
from outrider.models.lean.instructions import WIDTH
from outrider.models.lean.lanes import (
    COUNTS,
    add_lanes,
    add_products,
    load_lanes,
    max_lanes,
    store_lanes,
)
from outrider.models.lean.narrow import score_lines
from outrider.models.lean.vector import exponential


@fused
def score(queries, dim, kept, first, ahead, scales, scores, to, apart, lines):
    """scores[to + l apart :][:BLOCK] = query l times a block's keys, as `prepare` has made queries.

    Keys lie in `kept` from `first` on, the scales of those that are bytes from `scales` on, and
    what is read next `ahead` behind the keys.
    """
    line = 0
    while line < lines:
        count, t = _at_once(lines - line), to + line * apart
        score_lines(queries, line, dim, kept, first, ahead, scales, scores, t, apart, count)
        line += count


@fused
def weigh(scores):
    """Scores [n] become exp(score - greatest); returns their sum, added in 16 lanes."""
    size = scores.shape[0]
    whole = size // WIDTH * WIDTH
    greatest = scores[0]
    lanes = np.empty(WIDTH, np.float32)
    if whole:
        most = load_lanes(scores, 0)
        for i in range(WIDTH, whole, WIDTH):
            most = max_lanes(most, load_lanes(scores, i))
        store_lanes(lanes, 0, most)
        for i in range(WIDTH):
            greatest = max(greatest, lanes[i])
    for i in range(whole, size):
        greatest = max(greatest, scores[i])
    for i in range(size):
        scores[i] = exponential(np.float32(scores[i] - greatest))
    total = np.float32(0.0)
    if whole:
        sums = load_lanes(scores, 0)
        for i in range(WIDTH, whole, WIDTH):
            sums = add_lanes(sums, load_lanes(scores, i))
        store_lanes(lanes, 0, sums)
        for i in range(WIDTH):
            total += lanes[i]
    for i in range(whole, size):
        total += scores[i]
    return total


@fused
def add_values(weights, at, apart, lines, kept, first, ahead, count, dim, sums, to):
    """sums[to + l dim :][:dim] += weights[at + l apart :][:count] times the values [count, dim]
    that lie in `kept` from `first` on, key by key; what is read next lies `ahead` behind these."""
    line = 0
    while line < lines:
        step = _at_once(lines - line)
        w, t = at + line * apart, to + line * dim
        column = 0
        while column < dim:
            v, s = first + column, t + column
            if column + 4 * WIDTH <= dim:
                add_products(
                    weights, w, apart, kept, v, dim, count, ahead, sums, s, dim, step, 4, 0
                )
                column += 4 * WIDTH
            else:
                add_products(
                    weights, w, apart, kept, v, dim, count, ahead, sums, s, dim, step, 1, 0
                )
                column += WIDTH
        line += step


@fused
def _at_once(lines):
    """The greatest of COUNTS that is not above `lines`."""
    for count in COUNTS:
        if count <= lines:
            return count
    return 1
