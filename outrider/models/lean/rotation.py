"""Queries and keys are rotated, and keys and values written to the cache.

`pool` is the buffer of `outrider.models.pool` [blocks, elements]; `first` the place of a layer's
part in it.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from outrider.core.compiled import fused_inline, parallel
from outrider.models.lean.rows import mean_square
from outrider.models.lean.vector import store_row
from outrider.models.pool import BLOCK


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
    dim = 2 * cos.shape[1]
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
                values[i] = np.float32(source[start + i] * scale)
            if bias.shape[0] > 0:
                for i in range(dim):
                    values[i] += bias[start + i]
            base = first + kv_heads * dim * BLOCK + (head * BLOCK + place[row]) * dim
            store_row(values, kept[base : base + dim])
