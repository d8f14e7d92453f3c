"""auto over drafters that tests play, on a clock that tests set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.registry import build_drafters
from draft_service.drafters.setup import Setup, Vocabulary
from outrider.core.round import Budget, Features, Proposal, SamplingParams, TruncatedDistribution
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter, DraftSession, FeatureSpec
from outrider.drafting.ngram import NgramDrafter
from outrider.drafting.specs import DrafterRefused

GREEDY = SamplingParams(temperature=0.0)
K4 = Budget(4, 4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Played(Drafter):
    """Proposes `drafted`, for `cost` seconds a level, and remembers what it was told."""

    def __init__(
        self,
        method: str,
        drafted: Sequence[int] = (50, 51, 52, 53),
        clock: Clock | None = None,
        cost: float = 0.0,
        features: FeatureSpec | None = None,
        wants_samples: bool = False,
    ) -> None:
        self.method = method
        self.drafted, self.clock, self.cost = drafted, clock or Clock(), cost
        self.features, self.wants_samples = features, wants_samples
        self.batches: list[int] = []
        self.budgets: list[Budget] = []
        self.told: list[tuple[list[int], list[Features], list[int]]] = []
        self.prefilled: list[int | None] = []
        self.open_sessions = 0

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        self.open_sessions += 1
        return super().open(prompt, sampling)

    def close(self, session: DraftSession) -> None:
        self.open_sessions -= 1

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        self.prefilled.append(rows)
        return len(self.prefilled) > 1

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        session.tokens.extend(new_tokens)
        self.told.append((list(new_tokens), list(features), list(samples)))

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        self.batches.append(len(batch))
        self.budgets += [budget for _, budget in batch]
        self.clock.now += self.cost * max(budget.depth for _, budget in batch)
        return [self.one(session, budget) for session, budget in batch]

    def one(self, session: DraftSession, budget: Budget) -> Proposal:
        return Proposal(
            TokenTree.chain(session.tokens[-1], self.drafted[: budget.depth]), self.method
        )


def ask(auto: AutoDrafter, session: DraftSession, budget: Budget = K4) -> Proposal:
    return auto.propose([(session, budget)])[0]


def rounds(
    auto: AutoDrafter, session: DraftSession, right: Sequence[str], count: int, clock: Clock
) -> list[str]:
    """Rounds in which drafts of the methods in `right` are kept whole and others not at all;
    a pass takes 20 ms. The methods chosen."""
    chosen = []
    for _ in range(count):
        proposal = ask(auto, session)
        chosen.append(proposal.method)
        clock.now += 0.02
        kept = proposal.tree.tokens[1:] if proposal.method in right else ()
        auto.observe(session, [*kept, 9])
    return chosen


def test_match_is_taken_on_a_repeating_text_and_the_model_otherwise() -> None:
    model = Played("model")
    auto = AutoDrafter([NgramDrafter(), model], Clock())
    repeating = auto.open([1, 2, 3, 4, 5, 6] * 4, GREEDY)
    fresh = auto.open(list(range(24)), GREEDY)
    proposals = auto.propose([(repeating, K4), (fresh, K4)])
    assert [proposal.method for proposal in proposals] == ["ngram", "model"]
    assert proposals[0].tree == TokenTree.chain(6, [1, 2, 3, 4])
    assert model.batches == [1]


def test_sessions_that_choose_alike_are_drafted_together_and_answered_in_order() -> None:
    model = Played("model")
    auto = AutoDrafter([NgramDrafter(), model], Clock())
    prompts = [[7], [1, 2, 3] * 5, [8], [4, 5, 6] * 5, [9]]
    batch = [(auto.open(prompt, GREEDY), K4) for prompt in prompts]
    proposals = auto.propose(batch)
    assert [p.method for p in proposals] == ["model", "ngram", "model", "ngram", "model"]
    assert [p.tree.tokens[0] for p in proposals] == [7, 3, 8, 6, 9]
    assert model.batches == [3]


def test_a_match_must_beat_what_the_model_has_shown() -> None:
    """The same doubtful match: below a model that is always right, above one that never is."""
    for right, expected in ((["model"], "model"), ([], "ngram")):
        clock = Clock()
        auto = AutoDrafter([NgramDrafter(), Played("model", clock=clock)], clock)
        session = auto.open(list(range(60, 90)), GREEDY)
        for _ in range(30):
            proposal = ask(auto, session)
            clock.now += 0.02
            kept = proposal.tree.tokens[1:] if proposal.method in right else ()
            auto.observe(session, [*kept, 100 + len(session.tokens)])
        auto.observe(session, [62, 63])
        assert ask(auto, session).method == expected


def test_the_better_of_two_models_is_found_and_the_other_is_tried_again() -> None:
    clock = Clock()
    auto = AutoDrafter([Played("a", clock=clock), Played("b", clock=clock)], clock)
    session = auto.open([1], GREEDY)
    assert rounds(auto, session, ["b"], 40, clock)[-20:] == ["b"] * 20
    turned = rounds(auto, session, ["a"], 120, clock)
    assert turned[-20:] == ["a"] * 20


def test_a_slow_drafter_must_be_right_more_often() -> None:
    """Both are always right, one takes as long as a pass for each level."""
    clock = Clock()
    quick, slow = Played("quick", clock=clock), Played("slow", clock=clock, cost=0.02)
    auto = AutoDrafter([slow, quick], clock)
    session = auto.open([1], GREEDY)
    assert rounds(auto, session, ["quick", "slow"], 30, clock)[-10:] == ["quick"] * 10


def test_a_chain_is_no_deeper_than_it_pays_and_never_deeper_than_asked() -> None:
    clock = Clock()
    model = Played("model", clock=clock)
    auto = AutoDrafter([model], clock)
    session = auto.open([1], GREEDY)
    rounds(auto, session, ["model"], 30, clock)
    assert model.budgets[0].depth == model.budgets[0].nodes < 4
    assert model.budgets[-1].depth == model.budgets[-1].nodes == 4
    ask(auto, session, Budget(1, 1, m=7, p_min=0.25))
    assert model.budgets[-1] == Budget(1, 1, m=7, p_min=0.25)


def test_a_drafter_that_is_never_right_is_hardly_asked() -> None:
    clock = Clock()
    model = Played("model", clock=clock)
    auto = AutoDrafter([model], clock)
    session = auto.open([1], GREEDY)
    rounds(auto, session, [], 200, clock)
    asked = len(model.batches)
    assert 0 < asked < 60
    assert max(budget.depth for budget in model.budgets[-10:]) == 1
    assert rounds(auto, session, ["model"], 400, clock)[-10:] == ["model"] * 10  # and tried again


def test_a_tree_is_asked_for_where_rows_are_cheap_and_a_chain_where_they_are_dear() -> None:
    """The first child is right twice in three rounds, the second in the others."""

    class Wide(Played):
        def one(self, session: DraftSession, budget: Budget) -> Proposal:
            tree = TokenTree(
                (session.tokens[-1], 50, 51)[: budget.nodes + 1], (-1, 0, 0)[: budget.nodes + 1]
            )
            return Proposal(tree, self.method)

    for node_s, tree in ((0.0, True), (0.01, False)):
        clock = Clock()
        model = Wide("model", clock=clock)
        auto = AutoDrafter([model], clock)
        session = auto.open([1], GREEDY)
        for turn in range(100):  # with different numbers of nodes, or nobody could tell their cost
            proposal = ask(auto, session, Budget(1, 2) if turn < 90 and turn % 2 else Budget(1, 1))
            clock.now += 0.02 + node_s * proposal.tree.drafted
            wanted = 50 if turn % 3 else 51
            child = proposal.tree.child_with(0, wanted)
            auto.observe(session, [wanted] if child is None else [wanted, 9])
        ask(auto, session, Budget(1, 2))
        assert (model.budgets[-1].nodes > model.budgets[-1].depth) is tree


def test_the_choice_is_made_before_a_drafter_draws_and_what_it_drew_is_submitted() -> None:
    """Two drafters that draw the worst and the best tokens: the choice cannot tell them apart."""

    class Drawing(Played):
        def one(self, session: DraftSession, budget: Budget) -> Proposal:
            q = TruncatedDistribution(np.array([50, 60]), np.ones(2, np.float32))
            return Proposal(
                TokenTree.chain(session.tokens[-1], self.drafted[:1]), self.method, {0: q}
            )

    chosen = []
    for drawn in (50, 60):
        clock = Clock()
        drawing = Drawing("drawing", [drawn], clock)
        auto = AutoDrafter([NgramDrafter(), drawing], clock)
        session = auto.open([1, 2, 3, 1, 2], SamplingParams())
        proposals = []
        for _ in range(12):
            proposals.append(ask(auto, session))
            clock.now += 0.02
            auto.observe(session, [7])
        chosen.append([proposal.method for proposal in proposals])
        submitted = [p for p in proposals if p.method == "drawing"]
        assert len(submitted) == len(drawing.batches) > 0
        assert all(p.tree.tokens[1] == drawn and p.drawn_from for p in submitted)
    assert chosen[0] == chosen[1]


def test_rates_are_booked_under_the_method_that_proposed() -> None:
    clock = Clock()
    auto = AutoDrafter([NgramDrafter(), Played("model"), Played("other")], clock)
    session = auto.open(list(range(20)), GREEDY)
    before = {m: rates.at(1) for (m, tree), rates in session.state.rates.items() if not tree}
    assert ask(auto, session).method == "model"
    auto.observe(session, [50, 99])
    after = {m: rates for (m, tree), rates in session.state.rates.items() if not tree}
    assert after["model"].at(1) > before["model"]
    assert after["model"].at(2) < before["model"]  # one kept, the second refused
    assert after["model"].at(3) == before["model"]  # never reached
    assert after["other"].at(1) == before["other"]


def test_a_match_is_not_booked_under_a_model() -> None:
    clock = Clock()
    auto = AutoDrafter([NgramDrafter(), Played("model")], clock)
    session = auto.open([1, 2, 3] * 5, GREEDY)
    assert ask(auto, session).method == "ngram"
    auto.observe(session, [9])
    assert session.state.rates["model", False].at(1) == pytest.approx(0.4)


def test_a_drafter_that_was_asked_and_had_nothing_failed() -> None:
    clock = Clock()
    silent = Played("silent", drafted=[], clock=clock)
    auto = AutoDrafter([silent, Played("model", clock=clock)], clock)
    session = auto.open([1], GREEDY)
    chosen = rounds(auto, session, ["model"], 40, clock)
    assert chosen[0] == "silent"
    assert chosen[-20:] == ["model"] * 20


def test_a_draft_that_was_kept_whole_says_nothing_of_the_depth_behind() -> None:
    clock = Clock()
    auto = AutoDrafter([Played("model", clock=clock)], clock)
    session = auto.open([1], GREEDY)
    before = session.state.rates["model", False].at(3)
    ask(auto, session, Budget(2, 2))
    auto.observe(session, [50, 51, 99])
    assert session.state.rates["model", False].at(3) == before


def test_greedy_and_sampled_requests_are_known_apart() -> None:
    clock = Clock()
    auto = AutoDrafter([Played("model", clock=clock)], clock)
    session = auto.open([1], GREEDY)
    rounds(auto, session, ["model"], 20, clock)
    greedy, sampled = auto.open([1], GREEDY), auto.open([1], SamplingParams())
    assert greedy.state.rates["model", False].at(1) > 0.6
    assert sampled.state.rates["model", False].at(1) == pytest.approx(0.4)


def test_every_drafter_hears_every_token_and_only_the_last_trees_own_its_samples() -> None:
    one = Played("one", wants_samples=True)
    other = Played("other", drafted=[], wants_samples=True)
    auto = AutoDrafter([one, other], Clock())
    assert auto.wants_samples
    session = auto.open([1], GREEDY)
    auto.observe(session, [2], samples=[8])
    assert ask(auto, session).method == "one"
    auto.observe(session, [50, 9], samples=[50, 9, 9, 9, 9])
    assert [told[0] for told in one.told] == [told[0] for told in other.told] == [[2], [50, 9]]
    assert [told[2] for told in one.told] == [[], [50, 9, 9, 9, 9]]
    assert [told[2] for told in other.told] == [[], []]


def test_features_are_asked_for_once_and_each_drafter_gets_its_own_columns() -> None:
    eagle = Played("eagle", features=FeatureSpec((2, 15, 30), window=8))
    medusa = Played("medusa", features=FeatureSpec((30,)))
    auto = AutoDrafter([eagle, medusa, Played("plain")], Clock())
    assert auto.features == FeatureSpec((2, 15, 30), 0)
    rows = np.arange(2 * 3 * 4, dtype=np.uint16).reshape(2, 12)  # two rows, three taps of four
    session = auto.open([1, 2], GREEDY)
    auto.observe(session, [3], [Features(5, 2, 12, rows.tobytes())])
    assert eagle.told[0][1] == [Features(5, 2, 12, rows.tobytes())]
    assert medusa.told[0][1] == [Features(5, 2, 4, np.ascontiguousarray(rows[:, 8:]).tobytes())]
    assert auto.drafters["plain"].told[0][1] == []  # type: ignore[attr-defined]


def test_taps_of_several_are_united_in_order() -> None:
    specs = [FeatureSpec((30, 2), 4), FeatureSpec((15,), 9)]
    auto = AutoDrafter([Played(str(i), features=spec) for i, spec in enumerate(specs)], Clock())
    assert auto.features == FeatureSpec((2, 15, 30), 9)
    row = np.array([[1, 2, 3]], dtype=np.uint16)
    session = auto.open([1], GREEDY)
    auto.observe(session, [3], [Features(0, 1, 3, row.tobytes())])
    told = [drafter.told[0][1][0].data for drafter in auto.drafters.values()]  # type: ignore[attr-defined]
    assert told == [np.array(taps, np.uint16).tobytes() for taps in ([3, 1], [2])]
    assert AutoDrafter([Played("x")]).features is None


def test_prompt_is_worked_off_slice_by_slice_for_every_drafter() -> None:
    one, other = Played("one"), Played("other")
    auto = AutoDrafter([one, other], Clock())
    session = auto.open([1] * 9, GREEDY)
    done = [auto.prefill(session, 4) for _ in range(3)]
    assert done == [False, False, True]
    assert set(one.prefilled) == set(other.prefilled) == {4}


def test_alone_over_prompt_lookup_it_proposes_what_that_would() -> None:
    plain, auto = NgramDrafter(), AutoDrafter([NgramDrafter()], Clock())
    for prompt in ([1, 2, 3] * 4, [1, 2, 3, 4], [5]):
        for budget in (K4, Budget(4, 12), Budget(0, 0)):
            expected = plain.propose([(plain.open(prompt, GREEDY), budget)])[0]
            found = ask(auto, auto.open(prompt, GREEDY), budget)
            assert (found.tree, found.method) == (expected.tree, "ngram")


def test_sessions_of_all_drafters_close_and_a_failed_open_leaves_none() -> None:
    class Failing(Played):
        def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
            raise ArithmeticError("no")

    one, other = Played("one"), Played("other")
    auto = AutoDrafter([one, other], Clock())
    auto.close(auto.open([1], GREEDY))
    assert (one.open_sessions, other.open_sessions) == (0, 0)
    with pytest.raises(ArithmeticError):
        AutoDrafter([one, Failing("bad")], Clock()).open([1], GREEDY)
    assert one.open_sessions == 0


def test_it_is_there_where_two_others_are_or_where_it_is_named() -> None:
    setup = Setup("big", Vocabulary("big", "aaaa", 100, 64))

    def names(*specs: str) -> list[str]:
        return [drafter.method for drafter in build_drafters(specs, setup)]

    assert names("ngram") == ["ngram"]
    assert names("ngram", "lookahead") == ["ngram", "lookahead", "auto"]
    assert names("auto", "ngram") == ["ngram", "auto"]
    for specs in (["auto"], ["ngram", "auto=/x"]):
        with pytest.raises(DrafterRefused, match="auto takes no path and at least one other"):
            names(*specs)
    with pytest.raises(ValueError, match="drafters: 0, limit at least 1"):
        AutoDrafter([])
