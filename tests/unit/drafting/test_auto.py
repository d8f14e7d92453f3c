"""What auto chooses, and what its choice rests on."""

import numpy as np
import pytest
from played import GREEDY, K4, Clock, Played, ask, rounds

from draft_service.drafters.auto import AutoDrafter
from outrider.core.round import Budget, Proposal, SamplingParams, TruncatedDistribution
from outrider.core.tree import TokenTree
from outrider.drafting.base import DraftSession
from outrider.drafting.ngram import NgramDrafter


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
