"""Keys and values of eight bits: near what was written, and attended to as what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from outrider.models.cache import BLOCK, KVCache
from outrider.models.lean.attention import attend
from outrider.models.lean.plan import Plan, plan
from outrider.models.lean.rotation import rotate_and_write
from outrider.models.pool import SCALE_BYTES, KVPool, LayerShape
from outrider.models.segment import Segment

HEADS, KV_HEADS, DIM, CONTEXT = 6, 2, 32, 70
SHAPES = [LayerShape(KV_HEADS, DIM, DIM)] * 2
TREE = [-1, 0, 0, 1, 2, 4]
NONE = np.empty(0, np.float32)


class Written:
    """Random keys and values of a context and a tree, in the second layer of a pool."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.pool = KVPool(SHAPES, dtype, torch.device("cpu"), 1 << 20)
        self.cache = KVCache(self.pool)
        generator = np.random.default_rng(7)
        self._write(Segment.chain(self.cache, [1] * CONTEXT), generator)
        self.cache.length = CONTEXT
        self.plan, self.queries = self._write(Segment(self.cache, [1] * len(TREE), TREE), generator)

    def _write(self, segment: Segment, generator: Any) -> tuple[Plan, Any]:
        rows = len(segment.tokens)
        self.cache.reserve(self.cache.length + rows)
        made = plan([segment])
        widths = (HEADS + 2 * KV_HEADS) * DIM
        qkv = generator.standard_normal((rows, widths)).astype(np.float32)
        qkv *= np.exp(generator.standard_normal((rows, 1))).astype(np.float32)  # unlike magnitudes
        queries = np.empty((rows, HEADS * DIM), np.float32)
        angles = np.ones((rows, DIM // 2), np.float32), np.zeros((rows, DIM // 2), np.float32)
        rotate_and_write(
            *(qkv, np.ones(rows, np.float32), NONE, NONE, NONE, np.float32(0), *angles),
            *(made.block, made.place, self.pool.array, self.pool.offsets[1]),
            *(queries, HEADS, KV_HEADS),
        )
        return made, queries

    def attended(self) -> Any:
        """What the tree's rows attend to: [rows, heads * dim]."""
        out = np.empty_like(self.queries)
        made = self.plan
        attend(
            *(self.queries, self.pool.array, self.pool.offsets[1], KV_HEADS, DIM),
            *(made.tables, made.tiles, made.segment, made.view(None).arrays, out),
        )
        return out

    def scales(self) -> torch.Tensor:
        """[blocks of the cache, keys or values, heads, BLOCK] of the second layer."""
        end = self.pool.offsets[2]
        of_layer = self.pool.buffer[:, end - 2 * KV_HEADS * BLOCK * SCALE_BYTES : end]
        floats = torch.from_numpy(of_layer.numpy().copy().view(np.float32))
        return floats.view(-1, 2, KV_HEADS, BLOCK)[self.cache.table]

    def numbers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [blocks, heads, dim, BLOCK] and values [blocks, heads, BLOCK, dim] as kept."""
        keys, values = self.cache.blocks(1, len(self.cache.table))
        if self.pool.buffer.dtype == torch.int8:  # bytes plus 128, four dimensions side by side
            keys = keys.reshape(-1, KV_HEADS, DIM // 4, BLOCK, 4).transpose(3, 4)
            keys = keys.reshape(-1, KV_HEADS, DIM, BLOCK).view(torch.uint8).float() - 128
        return keys.float(), values.float()

    def floats(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The same as what they stand for."""
        keys, values = self.numbers()
        if self.pool.buffer.dtype == torch.int8:
            scales = self.scales()
            keys, values = keys * scales[:, 0, :, None], values * scales[:, 1, :, :, None]
        return keys, values


@pytest.fixture
def whole() -> Written:
    return Written(torch.float32)


@pytest.fixture
def narrow() -> Written:
    return Written(torch.int8)


def test_each_key_and_value_is_within_half_a_step_of_what_was_written(
    whole: Written, narrow: Written
) -> None:
    scales = narrow.scales()
    steps = scales[:, 0, :, None], scales[:, 1, :, :, None]
    for exact, found, step in zip(whole.floats(), narrow.floats(), steps, strict=True):
        assert bool(((exact - found).abs() <= 0.501 * step + 1e-9).all())
    largest = narrow.numbers()[0].abs().amax(2)  # 127 steps of its own for every key
    assert bool((largest.transpose(0, 1).reshape(KV_HEADS, -1)[:, :CONTEXT] == 127).all())


def rounded(queries: Any) -> Any:
    """Each head's query as 255 steps of its own between its largest magnitude and minus that."""
    heads = queries.reshape(-1, DIM)
    steps = np.abs(heads).max(1, keepdims=True) / 127
    return (np.round(heads / steps) * steps).reshape(queries.shape).astype(np.float32)


def test_rows_attend_to_the_keys_and_values_that_the_bytes_stand_for(
    whole: Written, narrow: Written
) -> None:
    found, exact = narrow.attended(), whole.attended()
    table = whole.cache.table
    whole.pool.keys(1)[table], whole.pool.values(1)[table] = narrow.floats()
    unrounded = whole.attended()
    whole.queries = rounded(whole.queries)
    np.testing.assert_allclose(found, whole.attended(), rtol=1e-4, atol=1e-5)
    # The test can tell rounding from none, of the cache and of the queries.
    assert np.abs(found - exact).max() > 1e-3
    assert np.abs(found - unrounded).max() > 1e-3


@pytest.mark.parametrize("part", [0, 1], ids=["keys", "values"])
def test_a_scale_that_is_not_its_own_would_be_seen(narrow: Written, part: int) -> None:
    found = narrow.attended()
    bytes_ = KV_HEADS * BLOCK * SCALE_BYTES
    start = narrow.pool.offsets[2] - (2 - part) * bytes_
    scales = narrow.pool.array[:, start : start + bytes_]
    scales[:] = np.roll(scales, SCALE_BYTES, axis=1)
    assert np.abs(found - narrow.attended()).max() > 1e-3


def test_a_row_moves_with_its_scales_and_leaves_the_others_alone(narrow: Written) -> None:
    before_keys, before_values = narrow.floats()
    narrow.cache.length = CONTEXT + len(TREE)
    narrow.cache.keep(CONTEXT, [CONTEXT + 2, CONTEXT + 4])
    keys, values = narrow.floats()
    place = CONTEXT - BLOCK
    for to, source in ((place, place + 2), (place + 1, place + 4)):
        assert torch.equal(keys[1, :, :, to], before_keys[1, :, :, source])
        assert torch.equal(values[1, :, to], before_values[1, :, source])
    assert torch.equal(keys[1, ..., :place], before_keys[1, ..., :place])
    assert torch.equal(keys[0], before_keys[0])


def test_a_block_of_bytes_takes_nearly_a_quarter_of_one_in_float32() -> None:
    sizes = [
        KVPool(SHAPES, d, torch.device("cpu"), 0).block_bytes for d in (torch.int8, torch.float32)
    ]
    assert sizes[0] == sizes[1] // 4 + 2 * len(SHAPES) * KV_HEADS * BLOCK * SCALE_BYTES
