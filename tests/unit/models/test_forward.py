"""A packed forward equals transformers' own forward of each root-to-node path alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.gpt_oss import GptOssConfig

from outrider.models.attention import UnsupportedModelError
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.decoders import LEAN_FAMILIES
from tests.tiny import FAMILIES, FINGERPRINT, tiny, tiny_model
from tests.unit.models.histories import LENGTHS, SEEDS, History, text_of
from tests.unit.models.trees import Case, cases

VOCAB = 64
TOLERANCE = 1e-4
slow = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def alone(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """Logits [vocab] behind `tokens`, by transformers."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0, -1]


def prefilled(lm: CausalLM, case: Case) -> Segment:
    cache = lm.new_cache()
    if case.context:
        lm.forward([Segment.chain(cache, case.context)])
    return Segment(cache, case.tokens, case.parents, case.tree_exact)


@pytest.fixture(
    scope="module",
    params=[
        *((family, "generic", 32) for family in FAMILIES),
        *((family, "lean", 64) for family in sorted(LEAN_FAMILIES)),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def pair(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, CausalLM]:
    family, decoder, hidden = request.param
    return tiny_model(family, hidden=hidden), tiny(family, hidden=hidden, decoder=decoder)


@slow
@given(batch=st.lists(cases(VOCAB), min_size=1, max_size=3), data=st.data())
def test_every_row_equals_its_path_alone_before_and_after_a_compaction(
    pair: tuple[PreTrainedModel, CausalLM], batch: list[Case], data: st.DataObject
) -> None:
    reference, lm = pair
    segments = [prefilled(lm, case) for case in batch]
    logits = lm.logits(lm.forward(segments).states)
    row = 0
    for case, segment in zip(batch, segments, strict=True):
        assert segment.cache.length == len(case.context) + len(case.tokens)
        for node in range(len(case.tokens)):
            expected = alone(reference, case.sequence(node))
            assert (logits[row] - expected).abs().max() < TOLERANCE
            row += 1
    # Keep one path of the tree, as a decision does, and go on with one token.
    kept = [case.path(data.draw(st.integers(0, len(case.tokens) - 1))) for case in batch]
    for case, segment, path in zip(batch, segments, kept, strict=True):
        old = len(case.context)
        segment.cache.keep(old, [old + node for node in path])
    following = [Segment.chain(segment.cache, [3]) for segment in segments]
    logits = lm.logits(lm.forward(following).states)
    for row, (case, path) in enumerate(zip(batch, kept, strict=True)):
        expected = alone(reference, [*case.sequence(path[-1]), 3])
        assert (logits[row] - expected).abs().max() < TOLERANCE


def check_a_history(pair: tuple[PreTrainedModel, CausalLM], data: st.DataObject) -> None:
    """A random tree in random company, behind a cache with a random history."""
    reference, lm = pair
    text, length = text_of(data.draw(st.sampled_from(SEEDS))), data.draw(st.sampled_from(LENGTHS))
    history = History(lm, data.draw, text, length)
    cache = history.run()
    case = data.draw(cases(VOCAB, contexts=(0,)))
    pack, first = history.beside(Segment(cache, case.tokens, case.parents, case.tree_exact))
    logits = lm.logits(lm.forward(pack).states)
    for node in range(len(case.tokens)):
        expected = alone(reference, [*text[:length], *case.sequence(node)])
        assert (logits[first + node] - expected).abs().max() < TOLERANCE


@settings(slow, max_examples=6)
@given(data=st.data())
def test_every_row_equals_its_path_alone_whatever_its_cache_went_through(
    pair: tuple[PreTrainedModel, CausalLM], data: st.DataObject
) -> None:
    check_a_history(pair, data)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(slow, max_examples=300)
@given(data=st.data())
def test_every_row_equals_its_path_alone_after_many_histories(
    pair: tuple[PreTrainedModel, CausalLM], data: st.DataObject
) -> None:
    check_a_history(pair, data)


def test_taps_are_the_inputs_of_the_layers_and_the_final_state(
    pair: tuple[PreTrainedModel, CausalLM],
) -> None:
    reference, lm = pair
    tokens = [5, 9, 33, 2, 60, 7]
    with torch.inference_mode():
        states = reference(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    hidden = lm.forward([Segment.chain(lm.new_cache(), tokens)], taps=(1, 0, lm.layers))
    assert hidden.taps is not None
    expected = torch.cat([states[1][0], states[0][0], states[2][0]], dim=-1)
    assert hidden.taps.shape == (6, 3 * lm.hidden_size)
    assert (hidden.taps - expected).abs().max() < TOLERANCE
    assert torch.equal(hidden.taps[:, -lm.hidden_size :], hidden.states)


def test_a_long_segment_is_cut_into_slices_and_stays_right(
    pair: tuple[PreTrainedModel, CausalLM],
) -> None:
    reference, lm = pair
    tokens = [(7 * i + i * i) % VOCAB for i in range(150)]
    states = lm.forward([Segment.chain(lm.new_cache(), tokens)]).states
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0]
    assert (lm.logits(states) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("tokens", "parents", "taps", "message"),
    [
        ([], [], (), "parents: 0 entries for 0 tokens"),
        ([1, 2], [-1], (), "parents: 1 entries for 2 tokens"),
        ([1, 2], [-1, 1], (), "parents: row 1 has parent 1, limit -1 to 0"),
        ([1, 64], [-1, 0], (), "tokens: 64, limit 0 to 63"),
        ([1], [-1], (3,), "taps: 3, limit 0 to 2"),
        ([1] * 513, range(-1, 512), (), "tokens: 513 positions, limit 512"),
    ],
)
def test_bad_rows_are_refused_and_leave_the_cache_alone(
    tokens: list[int], parents: list[int], taps: tuple[int, ...], message: str
) -> None:
    lm = tiny()
    cache = lm.new_cache()
    with pytest.raises(ValueError, match=message):
        lm.forward([Segment(cache, tokens, parents)], taps)
    assert cache.length == 0
    assert cache.nbytes == 0


def test_two_segments_on_one_cache_are_refused() -> None:
    lm = tiny()
    cache = lm.new_cache()
    with pytest.raises(ValueError, match="share a cache"):
        lm.forward([Segment.chain(cache, [1]), Segment.chain(cache, [2])])


def test_layers_that_attend_otherwise_are_refused() -> None:
    model = tiny_model("qwen2")
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(UnsupportedModelError, match="linear_attention"):
        CausalLM.from_model(model, name="odd", tokenizer_fingerprint=FINGERPRINT)


def test_attention_sinks_are_refused_when_the_model_is_taken_over() -> None:
    config = GptOssConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with pytest.raises(UnsupportedModelError, match="s_aux"):
        CausalLM.from_model(model, name="sinks", tokenizer_fingerprint=FINGERPRINT)


def test_the_fingerprint_follows_the_weights() -> None:
    assert tiny(seed=1).numerics.fingerprint == tiny(seed=1).numerics.fingerprint
    assert tiny(seed=1).numerics.fingerprint != tiny(seed=2).numerics.fingerprint
