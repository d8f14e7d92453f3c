"""One block of keys or values against one row's heads: sums that stay in registers."""

from __future__ import annotations

import numpy as np

from outrider.core.compiled import fused
from outrider.models.lean.lanes import WIDTH, add_product, load_lanes, store_lanes, zero_lanes
from outrider.models.lean.vector import exponential
from outrider.models.pool import BLOCK


@fused
def widen(kept, start, out):
    """A block's keys or values of one head as float32, in their order."""
    for i in range(0, out.size, WIDTH):
        store_lanes(out, i, load_lanes(kept, start + i))


@fused
def score(queries, start, dim, keys, scores, at):
    """scores[at : at + BLOCK] = queries[start : start + dim] times keys [dim * BLOCK], dimension by
    dimension."""
    a, b, c, d = zero_lanes(), zero_lanes(), zero_lanes(), zero_lanes()
    for i in range(dim):
        query, key = queries[start + i], i * BLOCK
        a = add_product(query, load_lanes(keys, key), a)
        b = add_product(query, load_lanes(keys, key + WIDTH), b)
        c = add_product(query, load_lanes(keys, key + 2 * WIDTH), c)
        d = add_product(query, load_lanes(keys, key + 3 * WIDTH), d)
    _store_four(scores, at, a, b, c, d)


@fused
def score_two(queries, start, dim, keys, scores, at, apart):
    """`score` for two heads that share their keys; their scores lie `apart`."""
    a, b, c, d = zero_lanes(), zero_lanes(), zero_lanes(), zero_lanes()
    e, f, g, h = zero_lanes(), zero_lanes(), zero_lanes(), zero_lanes()
    for i in range(dim):
        one, two, key = queries[start + i], queries[start + dim + i], i * BLOCK
        p, q = load_lanes(keys, key), load_lanes(keys, key + WIDTH)
        r, s = load_lanes(keys, key + 2 * WIDTH), load_lanes(keys, key + 3 * WIDTH)
        a, e = add_product(one, p, a), add_product(two, p, e)
        b, f = add_product(one, q, b), add_product(two, q, f)
        c, g = add_product(one, r, c), add_product(two, r, g)
        d, h = add_product(one, s, d), add_product(two, s, h)
    _store_four(scores, at, a, b, c, d)
    _store_four(scores, at + apart, e, f, g, h)


@fused
def weigh(scores):
    """Scores [n] become exp(score - greatest)."""
    greatest = scores[0]
    for i in range(scores.shape[0]):
        greatest = max(greatest, scores[i])
    for i in range(scores.shape[0]):
        scores[i] = exponential(np.float32(scores[i] - greatest))


@fused
def add_all(weights, at, apart, groups, values, first, count, dim, sums, totals, line):
    """For each head that shares the values [BLOCK * dim]: sums[line * dim :] += weights[at : at +
    count] times the values from key `first` on, key by key, and totals[line] += the weights. The
    heads' weights lie `apart`."""
    for group in range(groups):
        start = (line + group) * dim
        total = totals[line + group]
        column = 0
        while column + 4 * WIDTH <= dim:
            to = start + column
            a, b = load_lanes(sums, to), load_lanes(sums, to + WIDTH)
            c, d = load_lanes(sums, to + 2 * WIDTH), load_lanes(sums, to + 3 * WIDTH)
            whole = np.float32(0.0) if column else total
            for i in range(count):
                weight, value = weights[at + i], (first + i) * dim + column
                whole += weight
                a = add_product(weight, load_lanes(values, value), a)
                b = add_product(weight, load_lanes(values, value + WIDTH), b)
                c = add_product(weight, load_lanes(values, value + 2 * WIDTH), c)
                d = add_product(weight, load_lanes(values, value + 3 * WIDTH), d)
            if column == 0:
                totals[line + group] = whole
            _store_four(sums, to, a, b, c, d)
            column += 4 * WIDTH
        while column < dim:
            a = load_lanes(sums, start + column)
            whole = total
            for i in range(count):
                weight = weights[at + i]
                whole += weight
                a = add_product(weight, load_lanes(values, (first + i) * dim + column), a)
            if column == 0:
                totals[line + group] = whole
            store_lanes(sums, start + column, a)
            column += WIDTH
        at += apart


@fused
def _store_four(out, at, a, b, c, d):
    store_lanes(out, at, a)
    store_lanes(out, at + WIDTH, b)
    store_lanes(out, at + 2 * WIDTH, c)
    store_lanes(out, at + 3 * WIDTH, d)
