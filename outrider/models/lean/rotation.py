"""Queries and keys are rotated, and keys and values written to the cache.

`pool` is the buffer of `outrider.models.pool` [blocks, elements]; `first` the place of a layer's
part in it.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from outrider.core.compiled import fused_inline, parallel
from outrider.models.lean.narrow import keep_key, keep_scale
from outrider.models.lean.rows import mean_square
from outrider.models.lean.vector import store_row
from outrider.models.pool import BLOCK, SCALE_BYTES


@fused_inline
def head_row(source, start, dim, scale, bias, norm, eps, cos, sin, factor, out):
    """One head of one row: scale and bias of the linear, norm where there is one, rotation."""
    for i in range(dim):
        out[i] = np.float32(source[start + i] * scale)
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
    kv_heads,
):
    """Rotates the rows' queries and keys, and writes keys and values to the pool.

    qkv [rows, (heads + 2 kv) dim or more]; scales [rows]; bias [(heads + 2 kv) dim] or [0]; norms
    [dim] or [0]; cos, sin [rows, dim / 2]; block, place [rows] say where a row is kept; queries
    [rows, query heads * dim] float32, scaled by dim^-1/2.
    """
    dim, rows, groups = 2 * cos.shape[1], qkv.shape[0], heads // kv_heads
    factor, one = np.float32(1.0 / np.sqrt(dim)), np.float32(1.0)
    behind = first + 2 * kv_heads * dim * BLOCK  # scales, where keys and values have any
    # A thread takes a head of all rows: the keys of rows that follow one another share cache lines.
    for task in prange(kv_heads * (2 + groups)):
        kv_head, part = task // (2 + groups), task % (2 + groups)
        if part == 0:
            start, base = (heads + kv_head) * dim, first + kv_head * dim * BLOCK
            key, stored = np.empty(dim, np.float32), np.empty(dim, pool.dtype)
            for row in range(rows):
                source, scale, c, s = qkv[row], scales[row], cos[row], sin[row]
                head_row(source, start, dim, scale, bias, key_norm, eps, c, s, one, key)
                own = store_row(key, stored)
                kept = pool[block[row]]
                keep_key(stored, kept, base, place[row])
                keep_scale(kept, behind + (kv_head * BLOCK + place[row]) * SCALE_BYTES, own)
        elif part == 1:
            start = (heads + kv_heads + kv_head) * dim
            base = first + (kv_heads + kv_head) * dim * BLOCK
            value = np.empty(dim, np.float32)
            for row in range(rows):
                for i in range(dim):
                    value[i] = np.float32(qkv[row, start + i] * scales[row])
                if bias.shape[0] > 0:
                    for i in range(dim):
                        value[i] += bias[start + i]
                to, kept = base + place[row] * dim, pool[block[row]]
                own, at = store_row(value, kept[to : to + dim]), kv_heads + kv_head
                keep_scale(kept, behind + (at * BLOCK + place[row]) * SCALE_BYTES, own)
        else:
            start = (kv_head * groups + part - 2) * dim
            for row in range(rows):
                source, scale, c, s = qkv[row], scales[row], cos[row], sin[row]
                out = queries[row, start : start + dim]
                head_row(source, start, dim, scale, bias, query_norm, eps, c, s, factor, out)
