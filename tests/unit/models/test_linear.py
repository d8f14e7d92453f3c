"""A row of a packed product has the same bits however many rows stand beside it."""

from __future__ import annotations

import pytest
import torch

from outrider.models.linear import (
    SLICE,
    PackedLinear,
    PackedWeight,
    packed_name,
    packing_available,
    padded,
)

SHAPES = ((576, 1536), (576, 576), (960, 576), (3072, 576))  # of the default target
ROWS = (1, 2, 3, 4, 5, SLICE - 1, SLICE, SLICE + 1, SLICE + 2, 2 * SLICE + 1, 3 * SLICE + 3)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    if not packing_available(request.param, torch.device("cpu")):
        pytest.skip("this processor has no packed linears")
    return request.param  # type: ignore[no-any-return]


def product(out: int, wide: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(out)
    weight = torch.randn(out, wide, generator=generator) * 0.05
    return weight.to(dtype), torch.randn(max(ROWS), wide, generator=generator).to(dtype)


@pytest.mark.parametrize(("out", "wide"), SHAPES)
def test_rows_have_the_same_bits_in_every_number(out: int, wide: int, dtype: torch.dtype) -> None:
    weight, rows = product(out, wide, dtype)
    linear = PackedLinear(weight, None)
    alone = torch.cat([linear(row[None]) for row in rows])
    for number in ROWS:
        assert torch.equal(linear(rows[:number]), alone[:number]), number


def test_an_unpadded_row_behind_a_slice_would_differ() -> None:
    weight, rows = product(*SHAPES[0], torch.float32)
    packed = PackedWeight(weight)
    many = packed.product(rows[: SLICE + 1])
    if torch.equal(packed.product(rows[SLICE : SLICE + 1]), packed.product(rows[SLICE:][:4])[:1]):
        pytest.skip("this processor computes a single row as it computes many")
    assert not torch.equal(many[SLICE], PackedLinear(weight, None)(rows)[SLICE])


def test_no_slice_of_a_padded_number_has_fewer_than_four_rows() -> None:
    for rows in range(400):
        height = padded(rows)
        assert height >= rows
        assert height - rows < 4 or rows == 0
        assert height % SLICE == 0 or height % SLICE >= 4
        assert height > 0


def test_the_bias_is_added_to_every_row() -> None:
    weight, rows = product(576, 576, torch.float32)
    bias = torch.arange(576, dtype=torch.float32)
    difference = PackedLinear(weight, bias)(rows[:5]) - PackedLinear(weight, None)(rows[:5])
    assert torch.allclose(difference, bias.expand(5, -1), atol=1e-3)


def test_bfloat16_has_another_name_where_its_sums_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = []
    for there in (False, True):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda there=there: there)
        names.append([packed_name(kind) for kind in (torch.float32, torch.bfloat16)])
    assert names == [["onednn-packed"] * 2, ["onednn-packed", "onednn-packed-amx"]]
