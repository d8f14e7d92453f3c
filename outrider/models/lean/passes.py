"""A layer's pass, and a linear's, as one call: its kernels, one after the other.

Called one by one from Python they cost two to five microseconds each on top, a tenth of a pass.
"""

from __future__ import annotations

from outrider.core.compiled import fused
from outrider.models.lean.attention import attend
from outrider.models.lean.products import product
from outrider.models.lean.rotation import rotate_and_write
from outrider.models.lean.rows import add_norm, gated, scale_rows, store_rows


@fused
def run_layer(x, inputs, linears, weights, eps, shape, keys, rows, view, memory):
    """See `outrider.models.lean.layer.Layer.run`, whose arrays these are."""
    wide, scales = inputs
    qkv, o, gate_up, down = linears
    bias, query_norm, key_norm, middle_norm, following = weights
    heads, kv_heads, dim = shape
    pool, first, cos, sin = keys
    block, place, tables, tiles, segment = rows
    normed, normed_scales, attended, attended_scales = memory[:4]
    gate, gate_scales, queries, sums, qkv_out, o_out, gate_up_out, down_out = memory[4:]
    product(qkv, wide, qkv_out)
    rotate_and_write(
        *(qkv_out, scales, bias, query_norm, key_norm, eps, cos, sin, block, place, pool, first),
        *(queries, heads, kv_heads),
    )
    attend(queries, pool, first, kv_heads, dim, tables, tiles, segment, view, sums)
    store_rows(sums, attended, attended_scales)
    product(o, attended, o_out)
    add_norm(x, o_out, attended_scales, middle_norm, eps, normed, normed_scales)
    product(gate_up, normed, gate_up_out)
    gated(gate_up_out, normed_scales, gate, gate_scales)
    product(down, gate, down_out)
    if following.shape[0] > 0:
        add_norm(x, down_out, gate_scales, following, eps, normed, normed_scales)


@fused
def run_linear(rows, linear, inputs, scales, out):
    """See `outrider.models.lean.layer.apply_linear`, whose arrays these are."""
    store_rows(rows, inputs, scales)
    product(linear, inputs, out)
    if linear[1].shape[0] > 0:  # of bytes, which have scales
        scale_rows(out, scales)
