"""Lines of one tile against keys or values: sums that stay in registers, and softmax's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

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
from outrider.models.lean.narrow import VECTORS, narrowed, score_bytes
from outrider.models.lean.vector import exponential
from outrider.models.pool import BLOCK


def prepare(queries: Any, lines: int, dim: int, pool: Any) -> Any:
    """Queries [lines, dim] float32 as `score` wants them for keys of that pool."""
    raise NotImplementedError


@overload(prepare, inline="always")
def _prepare(queries, lines, dim, pool):
    if pool.dtype == types.int8:
        return lambda queries, lines, dim, pool: narrowed(queries, lines, dim)
    return lambda queries, lines, dim, pool: queries


def score(
    queries: Any,
    dim: int,
    kept: Any,
    first: int,
    ahead: int,
    scales: int,
    scores: Any,
    to: int,
    apart: int,
    lines: int,
) -> None:
    """scores[to + l apart :][:BLOCK] = query l times a block's keys.

    Keys [dim, BLOCK] lie in `kept` from `first` on and are added dimension by dimension; those of
    `outrider.models.lean.narrow` have scales from `scales` on. What is read next lies `ahead`
    behind the keys.
    """
    raise NotImplementedError


@overload(score)
def _score(queries, dim, kept, first, ahead, scales, scores, to, apart, lines):
    if kept.dtype == types.int8:

        def narrow(queries, dim, kept, first, ahead, scales, scores, to, apart, lines):
            line = 0
            while line < lines:
                count, t = _at_once(lines - line), to + line * apart
                score_bytes(queries, line, dim, kept, first, ahead, scales, scores, t, apart, count)
                line += count

        return narrow

    def wide(queries, dim, kept, first, ahead, scales, scores, to, apart, lines):
        line = 0
        while line < lines:
            n, a, t = _at_once(lines - line), line * dim, to + line * apart
            add_products(
                queries, a, dim, kept, first, BLOCK, dim, ahead, scores, t, apart, n, VECTORS, 1
            )
            line += n

    return wide


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
