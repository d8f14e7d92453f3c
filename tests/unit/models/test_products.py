"""The lean decoder's linears: our tiles and oneDNN's products, one against the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.lean import linear, products
from outrider.models.lean.linear import Dense, Int8, Linear, Tiled, Wide, make_linear
from outrider.models.lean.rows import store_rows
from outrider.models.linear import packing_available
from tests.tiny import FINGERPRINT, tiny_model

KINDS = [torch.float32, torch.bfloat16, torch.int8]
ROWS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 64, 65)
VOCAB = 64


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> torch.dtype:
    needed = torch.bfloat16 if request.param == torch.bfloat16 else torch.float32
    if not packing_available(needed, torch.device("cpu")):
        pytest.skip("this processor has no packed linears")
    return request.param  # type: ignore[no-any-return]


def inputs_of(values: torch.Tensor, kind: torch.dtype) -> Wide:
    inputs = Wide(*values.shape, kind)
    store_rows(values.numpy(), inputs.array, inputs.scales)
    return inputs


def floats(out: np.ndarray) -> np.ndarray:
    if out.dtype == np.uint16:
        return (out.astype(np.uint32) << 16).view(np.float32)
    return out


def example(outputs: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(outputs + width)
    weight = torch.randn(outputs, width, generator=generator) * 0.05
    return weight, torch.randn(max(ROWS), width, generator=generator)


def of_onednn(weight: torch.Tensor, kind: torch.dtype) -> Linear:
    return Int8(weight) if kind == torch.int8 else Dense(weight.to(kind))


@pytest.mark.parametrize(("outputs", "width"), [(96, 64), (576, 1536), (32, 4)])
def test_tiles_are_the_product_that_onednn_makes(
    outputs: int, width: int, kind: torch.dtype
) -> None:
    weight, values = example(outputs, width)
    made = make_linear(weight, kind)
    if not isinstance(made, Tiled):
        pytest.skip("this processor has no instruction for tiles of this kind")
    inputs = inputs_of(values, kind)
    found, expected = made(inputs), floats(of_onednn(weight, kind)(inputs))
    assert found.shape == (len(values), outputs)
    rounding = 0.01 if kind == torch.bfloat16 else 1e-5  # oneDNN's come back as bfloat16
    assert np.abs(found - expected).max() <= rounding * np.abs(expected).max()


@pytest.mark.parametrize("make", [make_linear, of_onednn])
def test_a_row_has_the_same_bits_in_any_company(make: object, kind: torch.dtype) -> None:
    weight, values = example(576, 1536)
    made = make(weight, kind)  # type: ignore[operator]
    alone = np.concatenate([made(inputs_of(row[None], kind)) for row in values])
    for number in ROWS:
        assert np.array_equal(made(inputs_of(values[:number], kind)), alone[:number]), number
        last = made(inputs_of(values[-number:], kind))
        assert np.array_equal(last, alone[-number:]), number


def test_int8_sums_are_exact(kind: torch.dtype) -> None:
    if kind != torch.int8:
        pytest.skip("only whole numbers have exact sums")
    weight, values = example(576, 1536)
    inputs = inputs_of(values, kind)
    whole, scale = linear.rounded(weight)
    signed = inputs.array.astype(np.int64) - 128
    sums = signed @ whole.numpy().astype(np.int64).T
    expected = sums.astype(np.float32) * scale.numpy()
    assert np.array_equal(make_linear(weight, kind)(inputs), expected)


@pytest.mark.parametrize(("outputs", "width"), [(33, 64), (64, 33)])
def test_a_weight_without_whole_tiles_goes_to_onednn(outputs: int, width: int) -> None:
    weight, values = example(outputs, width)
    kind = torch.float32 if outputs % 32 else torch.int8
    made = make_linear(weight, kind)
    assert not isinstance(made, Tiled)
    expected = values @ weight.T
    inputs = inputs_of(values, kind)
    found = made(inputs) * inputs.scales[:, None]
    assert np.abs(found - expected.numpy()).max() < 0.05 * expected.abs().max()


def test_a_processor_without_the_instruction_gets_the_same_model_from_onednn(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> CausalLM:
        model = tiny_model("llama", VOCAB, layers=2, hidden=128)
        return CausalLM.from_model(
            model if kind == torch.int8 else model.to(kind),
            name="tiles",
            tokenizer_fingerprint=FINGERPRINT,
            quantization="int8" if kind == torch.int8 else "none",
            decoder="lean",
        )

    def logits(lm: CausalLM) -> torch.Tensor:
        return lm.logits(lm.forward([Segment.chain(lm.new_cache(), range(20))]).states)

    tiles = build()
    monkeypatch.setattr(products.llvmlite.binding, "get_host_cpu_features", dict)
    monkeypatch.setattr(products, "_FEATURE", dict.fromkeys(linear_dtypes(), "nothing"))
    plain = build()
    assert "onednn" in plain.numerics.kernels
    assert plain.numerics.fingerprint != tiles.numerics.fingerprint
    expected = logits(plain)
    assert (logits(tiles) - expected).abs().max() < 0.05 * expected.abs().max()


def linear_dtypes() -> list[np.dtype]:
    return [np.dtype(name) for name in ("uint8", "uint16", "float32")]
