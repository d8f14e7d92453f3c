"""On the CPU a row's bits depend on its own keys alone, not on the rows beside it or on how it got
there.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.linear import PackedLinear, packing_available
from tests.tiny import FINGERPRINT, tiny_model
from tests.unit.models.trees import Case, cases

VOCAB = 64
slow = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
DTYPES = [
    pytest.param(
        dtype,
        marks=pytest.mark.skipif(
            not packing_available(dtype, torch.device("cpu")),
            reason="this processor has no packed linears",
        ),
    )
    for dtype in (torch.float32, torch.bfloat16)
]


@pytest.fixture(scope="module", params=["lean", "generic"])
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[*DTYPES, "int8"], ids=str)
def lm(request: pytest.FixtureRequest, decoder: str) -> CausalLM:
    # Wide enough that every product takes the kernels of a real model.
    int8 = request.param == "int8"
    model = tiny_model("llama", VOCAB, layers=2, hidden=128)
    return CausalLM.from_model(
        model if int8 else model.to(request.param),
        name="bits",
        tokenizer_fingerprint=FINGERPRINT,
        quantization="int8" if int8 else "none",
        decoder=decoder,
    )


def plain(lm: CausalLM, tokens: list[int]) -> torch.Tensor:
    """Logits [vocab] behind `tokens`: chunks of 16, and the last few token by token."""
    cache = lm.new_cache()
    single = max(0, len(tokens) - 4) // 16 * 16
    for start in range(0, single, 16):
        lm.forward([Segment.chain(cache, tokens[start : start + 16])])
    for token in tokens[single:]:
        states = lm.forward([Segment.chain(cache, [token])]).states
    return lm.logits(states)[0]


@slow
@given(batch=st.lists(cases(VOCAB, contexts=(0, 1, 17, 125, 130), most=6), min_size=1, max_size=3))
def test_rows_of_chains_and_exact_trees_have_the_bits_of_plain_decoding(
    lm: CausalLM, batch: list[Case]
) -> None:
    segments = []
    for case in batch:
        cache = lm.new_cache()
        if case.context:
            lm.forward([Segment.chain(cache, case.context)])
        segments.append(Segment(cache, case.tokens, case.parents, tree_exact=True))
    logits = lm.logits(lm.forward(segments).states)
    row = 0
    for case in batch:
        last = len(case.tokens) - 1
        assert torch.equal(logits[row], plain(lm, case.sequence(0)))
        assert torch.equal(logits[row + last], plain(lm, case.sequence(last)))
        row += len(case.tokens)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "outer"), [(576, 576), (1536, 576), (576, 1536), (48, 80)])
def test_rows_of_a_packed_linear_do_not_depend_on_their_number(
    dtype: torch.dtype, inner: int, outer: int
) -> None:
    generator = torch.Generator().manual_seed(inner)
    weight = torch.randn(outer, inner, generator=generator).to(dtype)
    bias = torch.randn(outer, generator=generator).to(dtype)
    linear = PackedLinear(weight, bias)
    x = torch.randn(130, inner, generator=generator).to(dtype)
    full = linear(x)
    for rows in (1, 2, 3, 5, 8, 16, 33, 64, 65, 129):
        assert torch.equal(linear(x[:rows]), full[:rows])
        assert torch.equal(linear(x[1 : rows + 1]), full[1 : rows + 1])
    exact = x.double() @ weight.double().T + bias.double()
    scale = float(exact.abs().max())
    assert float((full.double() - exact).abs().max()) < scale * (
        1e-5 if dtype == torch.float32 else 2e-2
    )


def test_without_packing_the_bits_do_depend_on_the_rows() -> None:
    """The negative control: the test above can tell."""
    generator = torch.Generator().manual_seed(0)
    weight, x = (
        torch.randn(576, 1536, generator=generator),
        torch.randn(64, 1536, generator=generator),
    )
    full = torch.nn.functional.linear(x, weight)
    assert any(
        not torch.equal(torch.nn.functional.linear(x[:rows], weight), full[:rows])
        for rows in range(1, 17)
    )
