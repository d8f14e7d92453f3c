"""A row's bits do not depend on how its cache came to hold what it holds: chunks of any size, rows
beside, compacted rounds, forks and prefix hits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from outrider.models.cache import BLOCK
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.linear import packing_available
from tests.tiny import FAMILIES, FINGERPRINT
from tests.unit.models.histories import LENGTHS, LONGEST, SEEDS, VOCAB, History, Plain, text_of

FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
WINDOWS = (None, 7, BLOCK + 6)


def model_of(decoder: str, kind: str, window: int | None) -> CausalLM:
    """A random Llama, or Mistral with a window; wide enough for a real model's kernels."""
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    if not packing_available(dtype, torch.device("cpu")):
        pytest.skip("this processor has no packed linears")
    config = FAMILIES["llama" if window is None else "mistral"](VOCAB, 2, 128)
    config.intermediate_size = 1536  # narrower products have one kernel for any number of rows
    if window is not None:
        config.sliding_window = window
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return CausalLM.from_model(
        model,
        name="bits",
        tokenizer_fingerprint=FINGERPRINT,
        quantization="int8" if kind == "int8" else "none",
        decoder=decoder,
        kv_bytes=64 << 20,
    )


@pytest.fixture(scope="module", params=["lean", "generic"])
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int8"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=WINDOWS, ids=lambda window: f"window-{window}")
def plain(request: pytest.FixtureRequest, decoder: str, kind: str) -> Plain:
    return Plain(model_of(decoder, kind, request.param))


def check_a_history(plain: Plain, data: st.DataObject) -> None:
    """Random trees and chains behind a cache with a random history."""
    lm, draw = plain.lm, data.draw
    seed, length = draw(st.sampled_from(SEEDS)), draw(st.sampled_from(LENGTHS))
    history = History(lm, draw, text_of(seed), length)
    cache = history.run()
    assert cache.length == length
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=7))
    chain = draw(st.booleans())
    parents = [row - 1 if chain else draw(st.integers(-1, row - 1)) for row in range(len(tokens))]
    pack, first = history.beside(Segment(cache, tokens, parents))
    logits = lm.logits(lm.forward(pack).states)
    for row in {0, len(tokens) - 1}:
        path = [row]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        expected = plain.logits(seed, length, [tokens[node] for node in path])
        assert logits[first + row].tolist() == expected


@FEW
@given(data=st.data())
def test_a_few_histories_give_the_bits_of_plain_decoding(plain: Plain, data: st.DataObject) -> None:
    check_a_history(plain, data)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(FEW, max_examples=300)
@given(data=st.data())
def test_many_histories_give_the_bits_of_plain_decoding(plain: Plain, data: st.DataObject) -> None:
    check_a_history(plain, data)


TRIES = 200
ROWS = 40
"""Last tokens of a text, which a control computes its own way; in bfloat16 most round alike."""


def differs(
    lm: CausalLM, change: Callable[[CausalLM, list[int]], torch.Tensor], tries: int = TRIES
) -> bool:
    """Whether the last rows of one of `tries` texts get other bits from `change` than as a chain;
    nearly the same numbers they must get."""
    for seed in range(tries):
        text, cache = text_of(seed), lm.new_cache()
        lm.forward([Segment.chain(cache, text[:-ROWS])])
        expected = lm.logits(lm.forward([Segment.chain(cache, text[-ROWS:])]).states)
        logits = change(lm, text)
        assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
        if not torch.equal(logits, expected):
            return True
    return False


def with_keys_in_another_order(lm: CausalLM, text: list[int]) -> torch.Tensor:
    """The rows of the first block lie in the reverse order."""
    cache, spare = lm.new_cache(), LONGEST + 5
    lm.forward([Segment.chain(cache, text[:-ROWS])])
    cache.reserve(spare + 1)
    for one in range(BLOCK // 2):
        rows = one, BLOCK - 1 - one, spare
        places = [(cache.table[row // BLOCK], row % BLOCK) for row in rows]
        for source, target in ((0, 2), (1, 0), (2, 1)):
            lm.pool.copy_row(places[source], places[target])
    return lm.logits(lm.forward([Segment.chain(cache, text[-ROWS:])]).states)


def with_masked_keys_between(lm: CausalLM, text: list[int]) -> torch.Tensor:
    """The last rows are nodes of a tree under a mask, with others between them."""
    cache = lm.new_cache()
    lm.forward([Segment.chain(cache, text[:-ROWS])])
    tokens, parents = list[int](), list[int]()
    for token in text[-ROWS:]:
        parent = len(tokens) - 1
        tokens += [(token + 1) % VOCAB, token]
        parents += [parent, parent]
    tree = Segment(cache, tokens, parents, tree_exact=False)
    return lm.logits(lm.forward([tree]).states[1::2])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_keys_in_another_order_give_other_bits(decoder: str, dtype: str) -> None:
    """A negative control: the order of the keys is what the bits rest on."""
    assert differs(model_of(decoder, dtype, None), with_keys_in_another_order)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_keys_between_a_rows_own_give_other_bits(dtype: str) -> None:
    """A negative control, by the generic decoder; the lean one walks over no masked keys."""
    assert differs(model_of("generic", dtype, None), with_masked_keys_between)
    assert not differs(model_of("lean", dtype, None), with_masked_keys_between, 24)
