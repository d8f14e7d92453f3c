"""Attention over blocks of keys and values: each row walks its own keys in the order of positions.

Scores are added over the head's dimensions in order, sums over keys key by key. So a row's bits are
a function of its own keys alone: they do not change with the rows beside it, the rows cached behind
it, or other branches of a tree that lie between its keys.

`pool` is the buffer of `outrider.models.pool` [blocks, elements]; `first` the place of a layer's
part in it. A row sees the cached rows up to `past` and, of its own tree, the rows of its path.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from outrider.core.compiled import fused_inline, parallel
from outrider.models.lean.rows import mean_square
from outrider.models.lean.tiles import add_all, score, score_two, weigh, widen
from outrider.models.lean.vector import load, store_row
from outrider.models.pool import BLOCK


@fused_inline
def head_row(source, start, dim, scale, bias, norm, eps, cos, sin, factor, out):
    """One head of one row: scale and bias of the linear, norm where there is one, rotation."""
    for i in range(dim):
        out[i] = np.float32(load(source, start + i) * scale)
    if bias.shape[0] > 0:
        for i in range(dim):
            out[i] += bias[start + i]
    if norm.shape[0] > 0:
        inverse = np.float32(1.0) / np.sqrt(mean_square(out[:dim]) + eps)
        for i in range(dim):
            out[i] = np.float32(out[i] * inverse) * norm[i]
    half = dim // 2
    for i in range(half):
        low, high = out[i], out[half + i]
        out[i] = np.float32(low * cos[i] - high * sin[i]) * factor
        out[half + i] = np.float32(high * cos[i] + low * sin[i]) * factor


@parallel
def rotate_and_write(
    qkv,
    scales,
    bias,
    query_norm,
    key_norm,
    eps,
    cos,
    sin,
    block,
    place,
    pool,
    first,
    queries,
    heads,
):
    """Rotates the rows' queries and keys, and writes keys and values to the pool.

    qkv [rows, (heads + 2 kv) dim]; scales [rows]; bias [(heads + 2 kv) dim] or [0]; norms [dim] or
    [0]; cos, sin [rows, dim / 2]; block, place [rows] say where a row is kept; queries [rows,
    query heads * dim] float32, scaled by dim^-1/2.
    """
    dim = 2 * cos.shape[1]
    kv_heads = (qkv.shape[1] // dim - heads) // 2
    factor = np.float32(1.0 / np.sqrt(dim))
    for row in prange(qkv.shape[0]):
        source, scale = qkv[row], scales[row]
        for head in range(heads):
            out = queries[row, head * dim : (head + 1) * dim]
            head_row(
                source,
                head * dim,
                dim,
                scale,
                bias,
                query_norm,
                eps,
                cos[row],
                sin[row],
                factor,
                out,
            )
        kept = pool[block[row]]
        values = np.empty(dim, np.float32)
        for head in range(kv_heads):
            start = (heads + head) * dim
            head_row(
                source,
                start,
                dim,
                scale,
                bias,
                key_norm,
                eps,
                cos[row],
                sin[row],
                np.float32(1.0),
                values,
            )
            one = np.empty(dim, pool.dtype)
            store_row(values, one)
            base = first + head * dim * BLOCK + place[row]
            for i in range(dim):
                kept[base + i * BLOCK] = one[i]
            start = (heads + kv_heads + head) * dim
            for i in range(dim):
                values[i] = np.float32(load(source, start + i) * scale)
            if bias.shape[0] > 0:
                for i in range(dim):
                    values[i] += bias[start + i]
            base = first + kv_heads * dim * BLOCK + (head * BLOCK + place[row]) * dim
            store_row(values, kept[base : base + dim])


@parallel
def attend(
    queries, pool, first, kv_heads, dim, tables, tiles, segment, begin, past, path_start, path, out
):
    """Attention of all rows of all segments.

    queries, out [rows, query heads * dim] float32; tables [segments, blocks]; tiles [tiles + 1]
    bounds of rows that go together, all of one segment; segment, begin, past [rows]: the row's
    segment and the cached rows, `begin` up to `past`, that it sees; path [n]: cached rows behind
    `past` that it sees besides, ascending, from path_start[row] up to path_start[row + 1].
    """
    for task in prange((tiles.shape[0] - 1) * kv_heads):
        tile, head = task // kv_heads, task % kv_heads
        low, high = tiles[tile], tiles[tile + 1]
        table = tables[segment[low]]
        groups = queries.shape[1] // dim // kv_heads
        since, until = begin[low], 0
        for row in range(low, high):
            since, until = min(since, begin[row]), max(until, past[row])
            if path_start[row + 1] > path_start[row]:
                until = max(until, path[path_start[row + 1] - 1] + 1)
        blocks = (until + BLOCK - 1) // BLOCK
        length = blocks * BLOCK
        scores = np.empty((high - low) * groups * length, np.float32)
        totals = np.zeros((high - low) * groups, np.float32)
        sums = np.zeros((high - low) * groups * dim, np.float32)
        tile = np.empty(BLOCK * dim, np.float32)
        for index in range(since // BLOCK, blocks):
            widen(pool[table[index]], first + head * dim * BLOCK, tile)
            for row in range(low, high):
                if index * BLOCK < past[row] or path_start[row + 1] > path_start[row]:
                    start, at = head * groups * dim, (row - low) * groups * length + index * BLOCK
                    for _ in range(groups // 2):
                        score_two(queries[row], start, dim, tile, scores, at, length)
                        start, at = start + 2 * dim, at + 2 * length
                    if groups % 2:
                        score(queries[row], start, dim, tile, scores, at)
        for row in range(low, high):
            extra = path_start[row + 1] - path_start[row]
            for group in range(groups):
                line = (row - low) * groups + group
                own = scores[line * length : (line + 1) * length]
                for i in range(extra):
                    own[past[row] + i] = own[path[path_start[row] + i]]
                weigh(own[begin[row] : past[row] + extra])
        values_first = first + (kv_heads * dim + head * dim) * BLOCK
        for index in range(since // BLOCK, blocks):
            widen(pool[table[index]], values_first, tile)
            for row in range(low, high):
                from_ = max(begin[row] - index * BLOCK, 0)
                count = min(past[row] - index * BLOCK, BLOCK) - from_
                at = (row - low) * groups * length
                if count > 0:
                    key = at + index * BLOCK + from_
                    add_all(
                        *(scores, key, length, groups, tile, from_, count, dim),
                        *(sums, totals, (row - low) * groups),
                    )
                for i in range(path_start[row], path_start[row + 1]):
                    place = path[i] - index * BLOCK
                    if 0 <= place < BLOCK:
                        key = at + past[row] + i - path_start[row]
                        add_all(
                            *(scores, key, length, groups, tile, place, 1, dim),
                            *(sums, totals, (row - low) * groups),
                        )
        for row in range(low, high):
            for group in range(groups):
                line = (row - low) * groups + group
                inverse = np.float32(1.0) / totals[line]
                for i in range(dim):
                    out[row, (head * groups + group) * dim + i] = sums[line * dim + i] * inverse
