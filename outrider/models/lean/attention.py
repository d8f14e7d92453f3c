"""Attention over blocks of keys and values: each row walks its own keys in the order of positions.

Scores are added over the head's dimensions in order, sums over keys key by key. So a row's bits are
a function of its own keys alone: they do not change with the rows beside it, the rows cached behind
it, or other branches of a tree that lie between its keys.

`pool` is the buffer of `outrider.models.pool` [blocks, elements]; `first` the place of a layer's
part in it. A row sees the cached rows up to `past` and, of its own tree, the rows of its path. The
rows of a tile go over the keys together, with the query heads that share a key-value head: these
are the tile's lines, row after row, whose scores lie `length` apart. Keys and values of int8 are
multiples of scales: a score is multiplied by its key's, a weight by its value's.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from outrider.core.compiled import fused, parallel
from outrider.models.lean.narrow import prepare, times_scales
from outrider.models.lean.tiles import add_values, score, weigh
from outrider.models.pool import BLOCK, SCALE_BYTES


@parallel
def attend(queries, pool, first, kv_heads, dim, tables, tiles, segment, view, out):
    """Attention of all rows of all segments.

    queries, out [rows, query heads * dim] float32; tables [segments, blocks]; tiles [tiles + 1]
    bounds of rows that go together, all of one segment; segment [rows]; view: the arrays of
    `outrider.models.lean.plan.View`, what a row sees.
    """
    count, groups = tiles.shape[0] - 1, queries.shape[1] // dim // kv_heads
    for task in prange(count * kv_heads):
        head, tile = task // count, task % count
        low, high = tiles[tile], tiles[tile + 1]
        table, lines = tables[segment[low]], (high - low) * groups
        since, until = _blocks(low, high, view)
        length = until * BLOCK
        scores, totals = np.empty(lines * length, np.float32), np.empty(lines, np.float32)
        own = np.empty(lines * dim, np.float32)
        for line in range(lines):
            start = (head * groups + line % groups) * dim
            for i in range(dim):
                own[line * dim + i] = queries[low + line // groups, start + i]
        keys, part = first + head * dim * BLOCK, kv_heads * dim * BLOCK
        scales = first + 2 * part + head * BLOCK * SCALE_BYTES
        asked = prepare(own, lines, dim, pool)
        _score(asked, lines, dim, pool, keys, scales, table, since, until, part, scores, length)
        for row in range(low, high):
            _weigh(row, (row - low) * groups, groups, view, scores, length, totals)
        values, scales = keys + part, scales + kv_heads * BLOCK * SCALE_BYTES
        sums = np.zeros(lines * dim, np.float32)
        _sum(
            *(scores, length, low, high, groups, view, pool, values, scales),
            *(table, since, until, dim, sums),
        )
        for line in range(lines):
            inverse = np.float32(1.0) / totals[line]
            start = (head * groups + line % groups) * dim
            for i in range(dim):
                out[low + line // groups, start + i] = sums[line * dim + i] * inverse


@fused
def _blocks(low, high, view):
    """Blocks that rows low to high see: the first, and the one behind the last."""
    begin, past, path_start, path = view
    since, until = begin[low], 0
    for row in range(low, high):
        since, until = min(since, begin[row]), max(until, past[row])
        if path_start[row + 1] > path_start[row]:
            until = max(until, path[path_start[row + 1] - 1] + 1)
    return since // BLOCK, (until + BLOCK - 1) // BLOCK


@fused
def _score(queries, lines, dim, pool, first, scales, table, since, until, part, scores, length):
    """Scores of a tile's lines with the keys of blocks since to until."""
    for index in range(since, until):
        ahead = part  # from the last keys to values
        if index + 1 < until:
            ahead = (table[index + 1] - table[index]) * pool.shape[1]
        kept, at = pool[table[index]], index * BLOCK
        score(queries, dim, kept, first, ahead, scales, scores, at, length, lines)


@fused
def _weigh(row, line, groups, view, scores, length, totals):
    """Scores of a row's lines become weights, those of its path moved behind the others; totals
    [lines] are their sums."""
    begin, past, path_start, path = view
    extra = path_start[row + 1] - path_start[row]
    for at in range(line, line + groups):
        own = scores[at * length : (at + 1) * length]
        for i in range(extra):
            own[past[row] + i] = own[path[path_start[row] + i]]
        totals[at] = weigh(own[begin[row] : past[row] + extra])


@fused
def _sum(
    scores, length, low, high, groups, view, pool, first, scales, table, since, until, dim, sums
):
    """Adds the values of blocks since to until, weighed, to a tile's sums [lines * dim]."""
    begin, past, path_start, path = view
    for index in range(since, until):
        kept, start, ahead = pool[table[index]], index * BLOCK, 0
        if index + 1 < until:
            ahead = (table[index + 1] - table[index]) * pool.shape[1]
        alike = True
        for row in range(low + 1, high):
            alike = alike and begin[row] == begin[low]
            alike = alike and min(past[row], start + BLOCK) == min(past[low], start + BLOCK)
        row = low
        while row < high:
            together = high - row if alike else 1
            from_ = max(begin[row], start)
            count, line = min(past[row], start + BLOCK) - from_, (row - low) * groups
            if count > 0:
                at, lines = line * length + from_, together * groups
                own = scales + (from_ - start) * SCALE_BYTES
                times_scales(scores, at, length, lines, kept, own, count)
                add_values(
                    *(scores, at, length, lines),
                    *(kept, first + (from_ - start) * dim, ahead, count, dim, sums, line * dim),
                )
            row += together
        for row in range(low, high):
            line = (row - low) * groups
            for i in range(path_start[row], path_start[row + 1]):
                place = path[i] - start
                if 0 <= place < BLOCK:
                    at = line * length + past[row] + i - path_start[row]
                    own = scales + place * SCALE_BYTES
                    times_scales(scores, at, length, groups, kept, own, 1)
                    add_values(
                        *(scores, at, length, groups),
                        *(kept, first + place * dim, ahead, 1, dim, sums, line * dim),
                    )
