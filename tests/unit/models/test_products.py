"""The lean decoder's linears: against exact products, and each row against itself in company."""

from __future__ import annotations

from typing import Any, cast

import llvmlite.binding
import numba
import numpy as np
import pytest
import torch

from outrider.models.causal_lm import CausalLM
from outrider.models.lean import linear, products
from outrider.models.lean.linear import Linear, Wide, linears_name
from outrider.models.lean.matrix_unit import LINE_BYTES, usable
from outrider.models.lean.rows import store_rows
from outrider.models.linear import packing_available, rounded
from tests.tiny import FINGERPRINT, tiny_model

KINDS = [torch.float32, torch.bfloat16, torch.int8]
ROWS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 16, 17, 23, 31, 32, 33, 47, 48, 49, 64, 65)
VOCAB = 64


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> torch.dtype:
    needed = torch.bfloat16 if request.param == torch.bfloat16 else torch.float32
    if not packing_available(needed, torch.device("cpu")):
        pytest.skip("this processor has no packed linears")
    return request.param  # type: ignore[no-any-return]


def inputs_of(values: torch.Tensor, kind: torch.dtype) -> Wide:
    inputs = Wide(values.shape[0], values.shape[1], kind)
    store_rows(values.numpy(), inputs.array, inputs.scales)
    return inputs


def exact(inputs: Wide, weight: torch.Tensor, kind: torch.dtype) -> np.ndarray:
    """The product of the stored rows and weights in float64, before the rows' scales."""
    width = weight.shape[1]
    if kind == torch.int8:
        whole, scale = rounded(weight)
        signed = inputs.array[:, :width].astype(np.int64) - 128
        return signed @ whole.numpy().astype(np.int64).T * scale.numpy().astype(np.float64)
    rows = torch.from_numpy(inputs.array[:, :width].copy())
    rows = rows.view(torch.bfloat16) if kind == torch.bfloat16 else rows
    return (rows.double() @ weight.to(kind).double().T).numpy()


def example(outputs: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(outputs + width)
    weight = torch.randn(outputs, width, generator=generator) * 0.05
    return weight, torch.randn(max(ROWS), width, generator=generator)


SHAPES = [(96, 64), (576, 1536), (32, 4), (33, 64), (64, 33), (7, 5)]


@pytest.fixture(params=["own", "vectors", "vpmaddwd", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How elements are multiplied: as this processor does it best, and as others have to."""
    if request.param == "own":
        return "own"
    if request.param == "vectors":
        monkeypatch.setattr(linear, "usable", lambda itemsize, width: False)
        return "vectors"
    features = {**llvmlite.binding.get_host_cpu_features()}
    if request.param == "vpmaddwd" and not features["avx2"]:
        pytest.skip("this processor has no such instruction")
    has = {"avx2": request.param == "vpmaddwd"}
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: has)
    assert not usable(1, LINE_BYTES)
    product = numba.njit(parallel=True)(cast(Any, products.product).py_func)
    monkeypatch.setattr(linear, "product", product)
    return str(request.param)


@pytest.mark.parametrize(("outputs", "width"), SHAPES)
def test_tiles_are_the_product(outputs: int, width: int, kind: torch.dtype, way: str) -> None:
    weight, values = example(outputs, width)
    inputs = inputs_of(values, kind)
    found, expected = Linear(weight, kind)(inputs), exact(inputs, weight, kind)
    assert found.shape == (len(values), outputs)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_row_has_the_same_bits_in_any_company(kind: torch.dtype, way: str) -> None:
    weight, values = example(576, 1536)
    made = Linear(weight, kind)
    alone = np.concatenate([made(inputs_of(row[None], kind)) for row in values])
    for number in ROWS:
        assert np.array_equal(made(inputs_of(values[:number], kind)), alone[:number]), number
        last = made(inputs_of(values[-number:], kind))
        assert np.array_equal(last, alone[-number:]), number


def test_int8_sums_are_exact(kind: torch.dtype, way: str) -> None:
    if kind != torch.int8:
        pytest.skip("only whole numbers have exact sums")
    weight, values = example(576, 1536)
    inputs = inputs_of(values, kind)
    whole, scale = rounded(weight)
    signed = inputs.array.astype(np.int64) - 128
    sums = signed @ whole.numpy().astype(np.int64).T
    expected = sums.astype(np.float32) * scale.numpy()
    assert np.array_equal(Linear(weight, kind)(inputs), expected)


def test_a_processor_without_the_instruction_has_another_fingerprint(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> CausalLM:
        model = tiny_model("llama", VOCAB, layers=2, hidden=128)
        return CausalLM.from_model(
            model if kind == torch.int8 else cast(Any, model).to(kind),
            name="tiles",
            tokenizer_fingerprint=FINGERPRINT,
            quantization="int8" if kind == torch.int8 else "none",
            decoder="lean",
        )

    best, name = build(), linears_name(kind)
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", dict)
    same = linears_name(kind) == name
    assert same == (kind == torch.float32 or name.endswith("plain"))
    assert (build().numerics.fingerprint == best.numerics.fingerprint) == same
