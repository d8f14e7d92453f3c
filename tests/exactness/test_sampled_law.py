"""Sampled text has the target's law: G-tests on three tokens, and what must fail them."""

import numpy as np
import pytest
from sampling_runs import CHAIN, TREE, M, Shape, WrongDrafter, count_tokens, exact_law, memoise

from draft_service.drafters.choose import NONE, Children
from outrider.core import acceptance
from outrider.core.acceptance import Kind, Uniform, draw_without_replacement
from outrider.core.round import NodeEvidence, SamplingParams, TruncatedDistribution
from outrider.core.sampling import draw, truncate
from outrider.drafting.ngram import NgramDrafter
from tests.local.drafters import LocalDraft, draft_model
from tests.local.laws import g_test
from tests.local.memo_lm import MemoLM, memo_lm, noisy

SAMPLES = 20_000
PASSES = 1e-4
FAILS = 1e-6
PLAIN = SamplingParams()
WARPED = SamplingParams(temperature=0.8, top_k=5, top_p=0.9)
PROMPT = [1, 2]
LOOKUP = [
    1,
    2,
    0,
    5,
    3,
    4,
    6,
    7,
    2,
    1,
    3,
    0,
    4,
    5,
    7,
    6,
    1,
]  # every token occurs, so a match is always at hand


@pytest.fixture(scope="module")
def target() -> MemoLM:
    return memo_lm(seed=0)


@pytest.fixture(scope="module")
def stranger() -> MemoLM:
    """A draft model that is mostly wrong: it shares a third of the target's mass."""
    return memo_lm(seed=5)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    memoise(monkeypatch)


@pytest.mark.parametrize(
    ("sampling", "shape"),
    [
        pytest.param(PLAIN, CHAIN, id="plain chain"),
        pytest.param(WARPED, TREE, id="warped tree"),
        pytest.param(PLAIN, TREE, id="plain tree", marks=pytest.mark.full),
        pytest.param(WARPED, CHAIN, id="warped chain", marks=pytest.mark.full),
    ],
)
def test_drawn_drafts_leave_the_law_of_the_target(
    sampling: SamplingParams, shape: Shape, target: MemoLM, stranger: MemoLM
) -> None:
    counts, kinds = count_tokens(
        target, draft_model(stranger), PROMPT, lambda _: sampling, shape, SAMPLES
    )
    assert min(kinds[Kind.ACCEPTED], kinds[Kind.RECOVERED]) > SAMPLES / 10
    assert g_test(counts, exact_law(target, PROMPT, sampling)) > PASSES


@pytest.mark.full
@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_drafts_of_the_target_itself_and_of_a_noisy_copy_leave_the_law(
    noise: float, shape: Shape, target: MemoLM
) -> None:
    draft = draft_model(noisy(target, noise))
    counts, kinds = count_tokens(target, draft, PROMPT, lambda _: PLAIN, shape, SAMPLES)
    assert kinds[Kind.ACCEPTED] > SAMPLES / 2
    assert g_test(counts, exact_law(target, PROMPT, PLAIN)) > PASSES


def test_looked_up_drafts_leave_the_law_of_the_target(target: MemoLM) -> None:
    draft = LocalDraft(NgramDrafter(min_n=1))
    counts, kinds = count_tokens(target, draft, LOOKUP, lambda _: PLAIN, TREE, SAMPLES)
    assert min(kinds[Kind.ACCEPTED], kinds[Kind.RECOVERED]) > SAMPLES / 10
    assert g_test(counts, exact_law(target, LOOKUP, PLAIN)) > PASSES


def test_seeds_leave_the_law_of_the_target(target: MemoLM) -> None:
    """One text a seed: over seeds it has the target's law, the draft coupled to the same noise."""
    draft = draft_model(noisy(target, 0.1))
    counts, kinds = count_tokens(
        target,
        draft,
        PROMPT,
        lambda seed: SamplingParams(temperature=0.8, seed=seed),
        CHAIN,
        SAMPLES,
    )
    assert kinds[Kind.ACCEPTED] > SAMPLES / 2
    assert g_test(counts, exact_law(target, PROMPT, SamplingParams(temperature=0.8))) > PASSES


# What must not pass. Each is one step from what the code does.

CONTROL_SAMPLES = 6_000


def p_value(target: MemoLM, draft: LocalDraft, shape: Shape) -> float:
    counts, kinds = count_tokens(target, draft, PROMPT, lambda _: PLAIN, shape, CONTROL_SAMPLES)
    assert kinds[Kind.RECOVERED] > CONTROL_SAMPLES / 10
    return g_test(counts, exact_law(target, PROMPT, PLAIN))


def test_full_q_sampled_but_truncated_q_declared_is_caught(
    target: MemoLM, stranger: MemoLM
) -> None:
    rng = np.random.default_rng(1)

    def make(q: np.ndarray, count: int) -> Children:
        token, told = draw(q, rng.random()), truncate(q, M)
        if (
            token not in told.ids
        ):  # the declared law has no mass there: the ratio is as good as infinite
            weights = dict(
                zip([*told.ids.tolist(), token], [*told.weights.tolist(), 1e-9], strict=True)
            )
            ids = sorted(weights)
            told = TruncatedDistribution(
                np.array(ids), np.array([weights[i] for i in ids], dtype=np.float32)
            )
        return Children([token], told)

    assert p_value(target, LocalDraft(WrongDrafter(stranger, make)), CHAIN) < FAILS


def test_skipping_the_residual_is_caught(
    target: MemoLM, stranger: MemoLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = acceptance.reject

    def wrong(
        tokens: list[int],
        q: TruncatedDistribution,
        evidence: NodeEvidence,
        outside: int,
        uniform: Uniform,
    ) -> tuple[int | None, int]:
        place, token = right(tokens, q, evidence, outside, uniform)
        if place is None:
            index = draw(np.append(evidence.probabilities, evidence.outside), uniform())
            token = outside if index == q.ids.size else int(q.ids[index])
        return place, token

    monkeypatch.setattr(acceptance, "reject", wrong)
    assert p_value(target, draft_model(stranger), CHAIN) < FAILS


def test_siblings_drawn_with_replacement_but_tested_without_are_caught(
    target: MemoLM, stranger: MemoLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree cannot carry equal siblings, so the test of every draw is put behind the tree."""
    rng = np.random.default_rng(1)
    draws: dict[int, list[int]] = {}
    kept: list[TruncatedDistribution] = []  # so that ids of objects stay theirs

    def make(q: np.ndarray, count: int) -> Children:
        cut = truncate(q, M)
        told = TruncatedDistribution(cut.ids, cut.weights)
        drawn = [int(told.ids[draw(told.probabilities, rng.random())]) for _ in range(count)]
        draws[id(told)] = drawn
        kept.append(told)
        return Children(list(dict.fromkeys(drawn)), told)

    right = acceptance.reject

    def tested(
        tokens: list[int],
        q: TruncatedDistribution,
        evidence: NodeEvidence,
        outside: int,
        uniform: Uniform,
    ) -> tuple[int | None, int]:
        place, token = right(draws[id(q)], q, evidence, outside, uniform)
        return (None, token) if place is None else (tokens.index(token), token)

    monkeypatch.setattr(acceptance, "reject", tested)
    assert p_value(target, LocalDraft(WrongDrafter(stranger, make)), TREE) < FAILS


def test_dropping_a_sampled_token_whose_q_is_small_is_caught(
    target: MemoLM, stranger: MemoLM
) -> None:
    rng = np.random.default_rng(1)

    def make(q: np.ndarray, count: int) -> Children:
        told = truncate(q, M)
        tokens = draw_without_replacement(told, 1, rng)
        likely = told.probabilities[np.searchsorted(told.ids, tokens[0])] >= 0.3
        return Children(tokens, told) if likely else NONE

    assert p_value(target, LocalDraft(WrongDrafter(stranger, make)), CHAIN) < FAILS
