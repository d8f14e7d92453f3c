from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from enumeration import Chooser, law_of

from outrider.core import acceptance
from outrider.core.acceptance import EvidenceError, Kind, decide, draw_without_replacement, reject
from outrider.core.round import Evidence, NodeEvidence, TruncatedDistribution
from outrider.core.sampling import truncate
from outrider.core.tree import TokenTree

VOCAB = 6


def given(*numbers: float) -> Callable[[], float]:
    """A uniform that gives these numbers and fails when asked for more."""
    iterator: Iterator[float] = iter(numbers)
    return lambda: next(iterator)


def cut(weights: dict[int, float]) -> TruncatedDistribution:
    ids = sorted(weights)
    return TruncatedDistribution(
        np.array(ids), np.array([weights[i] for i in ids], dtype=np.float32)
    )


def evidence_of(p: np.ndarray, q: TruncatedDistribution) -> NodeEvidence:
    return NodeEvidence(p[q.ids], float(np.delete(p, q.ids).sum()))


LAWS = {
    "apart": ([0.3, 0.05, 0.2, 0.1, 0.25, 0.1], [0.05, 0.4, 0.15, 0.3, 0.06, 0.04]),
    "p has zeros": ([0.0, 0.5, 0.0, 0.2, 0.3, 0.0], [0.3, 0.2, 0.1, 0.15, 0.2, 0.05]),
    "q sharp": ([0.2, 0.2, 0.2, 0.2, 0.1, 0.1], [0.96, 0.01, 0.01, 0.01, 0.005, 0.005]),
    "p equals q": ([0.3, 0.3, 0.2, 0.2, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2, 0.0, 0.0]),
    "no common token": ([0.0, 0.0, 0.0, 0.0, 0.6, 0.4], [0.4, 0.3, 0.2, 0.1, 0.0, 0.0]),
    "p one token of q": ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.3, 0.2, 0.2, 0.2, 0.1, 0.0]),
}


@pytest.fixture
def enumerated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[Any, float]]:
    """The exact law of drawing `count` siblings from q~ and rejecting among them."""

    def law(
        p: np.ndarray,
        q: TruncatedDistribution,
        count: int,
        declared: TruncatedDistribution | None = None,
    ) -> dict[Any, float]:
        def run(chooser: Chooser) -> int:
            monkeypatch.setattr(acceptance, "draw", chooser.draw)
            siblings = draw_without_replacement(q, count, np.random.default_rng(0))
            told = declared or q
            outside = p.copy()
            outside[told.ids] = 0
            sample = chooser.choose(outside) if outside.any() else -1
            return reject(siblings, told, evidence_of(p, told), sample, chooser.uniform)[1]

        return law_of(run)

    return law


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("m", [1, 3, 4, 6])
@pytest.mark.parametrize("case", LAWS)
def test_rejection_emits_p_exactly(case: str, m: int, count: int, enumerated: Any) -> None:
    p, full = (np.array(row) for row in LAWS[case])
    law = enumerated(p, truncate(full, m), count)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    assert [law.get(token, 0.0) for token in range(VOCAB)] == pytest.approx(p.tolist(), abs=1e-7)


def test_rejection_under_another_q_than_was_drawn_from_is_biased(enumerated: Any) -> None:
    """The enumeration has power: the exactness above is no accident of the code that sums it up."""
    p, full = (np.array(row) for row in LAWS["apart"])
    told = cut(dict.fromkeys(truncate(full, 4).ids.tolist(), 0.25))
    law = enumerated(p, truncate(full, 4), 2, declared=told)
    assert max(abs(law.get(token, 0.0) - p[token]) for token in range(VOCAB)) > 0.01


def test_siblings_come_in_draw_order_without_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    q = cut({1: 0.5, 3: 0.3, 4: 0.2})

    def run(chooser: Chooser) -> tuple[int, ...]:
        monkeypatch.setattr(acceptance, "draw", chooser.draw)
        return tuple(draw_without_replacement(q, 2, np.random.default_rng(0)))

    law = law_of(run)
    assert len(law) == 6
    for (first, second), chance in law.items():  # type: ignore[misc]
        share = {1: 0.5, 3: 0.3, 4: 0.2}
        assert chance == pytest.approx(share[first] * share[second] / (1 - share[first]), abs=1e-7)


def test_drawing_ends_where_next_to_nothing_of_q_is_left() -> None:
    rng = np.random.default_rng(0)
    assert sorted(draw_without_replacement(cut({1: 0.5, 2: 0.5}), 5, rng)) == [1, 2]
    assert draw_without_replacement(cut({1: 1.0, 2: 1e-7}), 5, rng) == [1]
    assert sorted(draw_without_replacement(cut({1: 1.0, 2: 1e-4}), 5, rng)) == [1, 2]


def test_a_token_without_target_mass_is_refused_even_at_uniform_zero() -> None:
    q = cut({0: 0.5, 1: 0.5})
    p = np.array([0.0, 1.0, 0, 0, 0, 0])
    assert reject([0], q, evidence_of(p, q), -1, given(0.0, 0.0, 0.0)) == (None, 1)
    assert reject([0, 1], q, evidence_of(p, q), -1, given(0.0, 0.0)) == (1, 1)


def test_the_uniform_decides_at_the_ratio() -> None:
    q = cut({0: 0.5, 1: 0.5})
    p = np.array([0.25, 0.75, 0, 0, 0, 0])
    assert reject([0], q, evidence_of(p, q), -1, given(np.nextafter(0.5, 0))) == (0, 0)
    assert reject([0], q, evidence_of(p, q), -1, given(0.5, 0.0, 0.3)) == (None, 1)


@pytest.mark.parametrize("uniform", [0.0, 0.3, np.nextafter(1.0, 0)])
def test_p_equal_to_q_always_accepts(uniform: float) -> None:
    q = cut({0: 0.25, 2: 0.5, 5: 0.25})
    p = np.array([0.25, 0, 0.5, 0, 0, 0.25])
    for token in q.ids.tolist():
        assert reject([token], q, evidence_of(p, q), -1, given(uniform)) == (0, token)


def test_a_residual_without_mass_falls_back_to_p() -> None:
    """p falls short of q~ by rounding and the uniform hits the gap: p itself is drawn from."""
    q = cut({0: 0.5, 1: 0.5})
    evidence = NodeEvidence(np.array([0.5, 0.5]), 0.0)
    never = 1.0  # stands for a uniform that rounding put on the wrong side
    assert reject([0], q, evidence, -1, given(never, 0.5, 0.2)) == (None, 0)
    assert reject([0], q, evidence, -1, given(never, 0.5, 0.7)) == (None, 1)


def test_p_outside_the_whole_support_emits_the_outside_sample() -> None:
    q = cut({0: 0.6, 1: 0.4})
    p = np.array([0, 0, 0, 0, 0.5, 0.5])
    assert reject([0, 1], q, evidence_of(p, q), 5, given(0.0, 0.0, 0.999)) == (None, 5)
    assert reject([0, 1], q, evidence_of(p, q), 5, given(0.0, 0.0, 0.0)) == (None, 5)


def test_residual_inside_and_outside_the_support() -> None:
    q = cut({0: 0.8, 1: 0.2})
    p = np.array([0.2, 0.4, 0.4, 0, 0, 0])  # residual: 0.2 on token 1, 0.4 outside
    assert reject([0], q, evidence_of(p, q), 2, given(0.9, 0.66)) == (None, 2)
    assert reject([0], q, evidence_of(p, q), 2, given(0.9, 0.67, 0.0)) == (None, 1)


def test_evidence_may_come_in_any_scale() -> None:
    """float32 on the wire: p sums to 1 only up to rounding, and its scale does not matter."""
    q = cut({0: 0.8, 1: 0.2})
    scaled = NodeEvidence(np.array([2.0, 4.0]), 4.0)
    assert reject([0], q, scaled, 2, given(np.nextafter(0.25, 0))) == (0, 0)
    assert reject([0], q, scaled, 2, given(0.2500001, 0.66)) == (None, 2)


def test_walk_under_match_descends_and_emits() -> None:
    tree = TokenTree((9, 1, 2, 3, 4), (-1, 0, 0, 2, 3))
    none = given()
    assert decide(tree, {}, Evidence((2, 0, 3, 4, 7)), none) == acceptance.Decision(
        (2, 3, 4), 7, Kind.BONUS
    )
    assert decide(tree, {}, Evidence((2, 0, 3, 5, 7)), none) == acceptance.Decision(
        (2, 3), 5, Kind.RECOVERED
    )
    assert decide(tree, {}, Evidence((1, 0, 3, 5, 7)), none) == acceptance.Decision(
        (1,), 0, Kind.BONUS
    )
    assert decide(tree, {}, Evidence((5, 0, 3, 5, 7)), none) == acceptance.Decision(
        (), 5, Kind.RECOVERED
    )


def test_the_empty_proposal_emits_the_targets_sample() -> None:
    decision = decide(TokenTree.root_only(3), {}, Evidence((4,)), given())
    assert decision == acceptance.Decision((), 4, Kind.PLAIN)


def test_walk_mixes_nodes_of_both_rules() -> None:
    q = cut({1: 0.5, 2: 0.5})
    tree = TokenTree((9, 1, 2, 3), (-1, 0, 0, 2))
    node = NodeEvidence(np.array([0.0, 1.0]), 0.0)
    decision = decide(tree, {0: q}, Evidence((-1, 0, 3, 8), {0: node}), given(0.0, 0.0))
    assert decision == acceptance.Decision((2, 3), 8, Kind.BONUS)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (Evidence((1,), {}), r"evidence\.samples: 1 for 2 nodes"),
        (Evidence((1, 2), {}), r"evidence\.nodes: nothing for node 0"),
        (
            Evidence((1, 2), {0: NodeEvidence(np.array([1.0]), 0.0)}),
            r"evidence\.nodes: 1 probabilities, limit 2",
        ),
        (
            Evidence((1, 2), {0: NodeEvidence(np.zeros(2), 0.0)}),
            r"evidence\.nodes: mass 0, limit above 0",
        ),
        (
            Evidence((1, 2), {0: NodeEvidence(np.array([np.nan, 1]), 0.0)}),
            r"evidence\.nodes: mass nan, limit",
        ),
        (
            Evidence((-1, 2), {0: NodeEvidence(np.zeros(2), 1.0)}),
            r"evidence\.samples: none for node 0",
        ),
    ],
)
def test_evidence_that_does_not_fit_is_refused(evidence: Evidence, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        decide(TokenTree.chain(0, [1]), {0: cut({1: 0.5, 3: 0.5})}, evidence, lambda: 0.5)


def test_a_missing_sample_under_match_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"evidence\.samples: none for node 1"):
        decide(TokenTree.chain(0, [1]), {}, Evidence((1, -1)), given())


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "tested twice"])
def test_equal_draws_must_be_merged_before_the_test(
    merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged, draws with replacement are as good as draws without; tested twice they are not."""
    p, full = (np.array(row) for row in LAWS["apart"])
    q = truncate(full, 4)

    def run(chooser: Chooser) -> int:
        monkeypatch.setattr(acceptance, "draw", chooser.draw)
        siblings = [int(q.ids[chooser.choose(q.probabilities)]) for _ in range(2)]
        outside = p.copy()
        outside[q.ids] = 0
        tokens = list(dict.fromkeys(siblings)) if merged else siblings
        return reject(tokens, q, evidence_of(p, q), chooser.choose(outside), chooser.uniform)[1]  # type: ignore[arg-type]

    law = law_of(run)
    difference = max(abs(law.get(token, 0.0) - p[token]) for token in range(VOCAB))
    assert difference < 1e-7 if merged else difference > 0.01
