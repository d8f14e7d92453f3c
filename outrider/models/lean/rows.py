"""Row by row: residual and norm, and the gated product, each with the store that the next linear
wants.

A linear's output comes with one scale a row (1 where it is not quantised): value = output * scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from outrider.core.compiled import fused_inline, parallel
from outrider.models.lean.instructions import WIDTH
from outrider.models.lean.vector import exponential, load_row, store_row

Array = np.ndarray[Any, Any]


@fused_inline
def mean_square(values):
    """Mean of squares, added in 16 lanes and these in order."""
    lanes = np.zeros(WIDTH, np.float32)
    whole = values.shape[0] // WIDTH * WIDTH
    for start in range(0, whole, WIDTH):
        part = values[start : start + WIDTH]
        for lane in range(WIDTH):
            lanes[lane] += part[lane] * part[lane]
    total = np.float32(0.0)
    for lane in range(WIDTH):
        total += lanes[lane]
    for i in range(whole, values.shape[0]):
        total += values[i] * values[i]
    return np.float32(total / np.float32(values.shape[0]))


@parallel
def add_norm(x, delta, delta_scale, weight, eps, out, out_scale):
    """x += delta (none where it has no rows); out = RMS norm of x, times weight.

    x [rows, n] float32, delta [rows, n or more], weight [n], out [rows, n]; scales [rows].
    """
    for row in prange(x.shape[0]):
        values = x[row]
        if delta.shape[0] > 0:
            scale = delta_scale[row]
            change = delta[row]
            for i in range(values.shape[0]):
                values[i] += change[i] * scale
        factor = np.float32(1.0) / np.sqrt(mean_square(values) + eps)
        normed = np.empty(values.shape[0], np.float32)
        for i in range(values.shape[0]):
            normed[i] = np.float32(values[i] * factor) * weight[i]
        out_scale[row] = store_row(normed, out[row])


@fused_inline
def _norm_parts(values, weights, eps, out):
    """out = RMS norm of each part of values [parts * n], times weights [parts, n]."""
    parts, width = weights.shape
    for part in range(parts):
        first = part * width
        own = values[first : first + width]
        factor = np.float32(1.0) / np.sqrt(mean_square(own) + eps)
        for i in range(width):
            out[first + i] = np.float32(own[i] * factor) * weights[part, i]


@parallel
def norm_parts(values, weights, eps, out, out_scale):
    """out = RMS norm of each part of a row on its own, times its weight.

    values, out [rows, parts * n], weights [parts, n]; scales [rows].
    """
    for row in prange(values.shape[0]):
        normed = np.empty(values.shape[1], np.float32)
        _norm_parts(values[row], weights, eps, normed)
        out_scale[row] = store_row(normed, out[row])


@parallel
def norm_joined(embedding, ids, values, weights, eps, out, out_scale):
    """out = RMS norms of a token's embedding and of values, side by side, times their weights.

    embedding [vocabulary, n], ids [rows], values [rows, n], weights [2, n], out [rows, 2 n];
    scales [rows].
    """
    for row in prange(values.shape[0]):
        width = values.shape[1]
        joined, normed = np.empty(2 * width, np.float32), np.empty(2 * width, np.float32)
        load_row(embedding[ids[row]], joined[:width])
        load_row(values[row], joined[width:])
        _norm_parts(joined, weights, eps, normed)
        out_scale[row] = store_row(normed, out[row])


@parallel
def gated(gate_up, scale, out, out_scale):
    """out = silu(gate) * up.

    gate_up [rows, 2 n or more] with gate in front, out [rows, n]; scales [rows].
    """
    for row in prange(out.shape[0]):
        width = out.shape[1]
        gate, up = gate_up[row, :width], gate_up[row, width : 2 * width]
        factor = scale[row]
        product = np.empty(width, np.float32)
        for i in range(width):
            g = np.float32(gate[i] * factor)
            u = np.float32(up[i] * factor)
            product[i] = g * u / (np.float32(1.0) + exponential(min(-g, np.float32(87.0))))
        out_scale[row] = store_row(product, out[row])


@parallel
def store_rows(values, out, scales):
    """Rows of float32 as the next linear wants them."""
    for row in prange(values.shape[0]):
        scales[row] = store_row(values[row], out[row])


@parallel
def scale_rows(values, scales):
    """values [rows, n] *= scales [rows]."""
    for row in prange(values.shape[0]):
        own, scale = values[row], scales[row]
        for i in range(own.shape[0]):
            own[i] *= scale
