"""The self-check passes what is exact, and finds every way in which a row's bits may move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.models.causal_lm import CausalLM
from outrider.models.linear import packing_available
from outrider.models.pool import KVPool
from outrider.models.segment import Segment
from outrider.models.selfcheck import checked, self_check
from outrider.models.tree import is_chain
from tests.tiny import FINGERPRINT, tiny_model

packed = pytest.mark.skipif(
    not packing_available(torch.float32, torch.device("cpu")),
    reason="this processor has no packed linears",
)


def made(decoder: str = "auto", hidden: int = 128, **options: Any) -> CausalLM:
    return CausalLM.from_model(
        tiny_model("llama", 64, layers=2, hidden=hidden),
        name="checked",
        tokenizer_fingerprint=FINGERPRINT,
        decoder=decoder,
        **options,
    )


class Leaking:
    """A decoder whose states carry a little of something that they should not."""

    def __init__(self, inner: Any, leak: Callable[[Sequence[Segment]], Tensor]) -> None:
        self.inner = inner
        self.leak = leak

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, segments: Sequence[Segment], taps: Sequence[int]) -> Any:
        leaked = self.leak(segments)
        states, tapped = self.inner.forward(segments, taps)
        return states + 1e-3 * leaked[:, None], tapped


def number(segments: Sequence[Segment]) -> Tensor:
    rows = sum(len(segment.tokens) for segment in segments)
    return torch.full((rows,), float(rows))


def neighbours(segments: Sequence[Segment]) -> Tensor:
    return number(segments) * (len(segments) > 1)


def trees(segments: Sequence[Segment]) -> Tensor:
    return number(segments) * any(not is_chain(segment.parents) for segment in segments)


def chunks(segments: Sequence[Segment]) -> Tensor:
    """Rows behind an odd number of cached ones."""
    return number(segments) * (segments[0].cache.length % 2)


@packed
@pytest.mark.parametrize("decoder", ["lean", "generic"])
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_an_exact_model_passes_and_its_pool_is_as_before(decoder: str, quantization: str) -> None:
    lm = made(decoder, quantization=quantization)
    found = self_check(lm)
    assert found is not None
    assert (found.exact, found.failed, str(found)) == (True, (), "exact")
    assert lm.pool.used == 0


@packed
@pytest.mark.parametrize("leak", [number, neighbours, trees, chunks])
def test_a_decoder_whose_rows_depend_on_their_company_is_found_out(
    leak: Callable[[Sequence[Segment]], Tensor],
) -> None:
    lm = made()
    lm.decoder = Leaking(lm.decoder, leak)
    found = self_check(lm)
    assert found is not None
    expected = {"number": "number of rows"}.get(leak.__name__, leak.__name__)
    assert expected in found.failed
    assert not found.exact
    if leak is neighbours:
        assert found.failed == ("neighbours",), "nothing else is blamed"
    assert lm.pool.used == 0


@packed
def test_rows_that_are_lost_when_kept_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = made()
    monkeypatch.setattr(KVPool, "copy_row", lambda *_: None)
    assert self_check(lm).failed == ("kept rows",)  # type: ignore[union-attr]


@packed
def test_what_was_found_is_part_of_the_fingerprint() -> None:
    fresh, good, bad = made(), made(), made()
    bad.decoder = Leaking(bad.decoder, number)
    assert checked(good) is good
    checked(bad)
    assert fresh.numerics.self_check == "unchecked"
    assert good.numerics.self_check == "exact"
    assert bad.numerics.self_check.startswith("inexact: number of rows")
    assert len({lm.numerics.fingerprint for lm in (fresh, good, bad)}) == 3


def test_a_pool_without_room_leaves_the_model_unchecked() -> None:
    lm = made(kv_bytes=1)
    assert self_check(lm) is None
    assert checked(lm).numerics.self_check == "unchecked"
    assert lm.pool.used == 0
