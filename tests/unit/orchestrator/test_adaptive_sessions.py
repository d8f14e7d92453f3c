"""A session's controller over simulated rounds: what it books and when it tries again."""

from collections.abc import Sequence

import pytest

from orchestrator.adaptive import PROBES, AdaptiveDepth
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.peers import RunTokens
from orchestrator.state import Bounds, Choice, Reason
from orchestrator.survival import Survival
from outrider.core.round import Budget, Evidence, Load, Proposal
from outrider.core.tree import TokenTree

FAR = 1 << 30
ALONE = Load(sessions=1, rows=1, batch=1)
CROWD = Load(sessions=32, rows=32, batch=32)
WIDE = TokenTree((1, 2, 3, 4), (-1, 0, 0, 2))  # 3 and 4 stand behind the second child


class Session:
    """A controller without shadow drafts on a target whose passes take 10 ms and 2 ms a node."""

    def __init__(self, *, whole: bool) -> None:
        self.choices: list[Choice] = []
        self.now = 0.0
        drafter = DraftCosts()
        self.controller = AdaptiveDepth(
            Bounds(0, 2, 3, 2, whole),
            Budget(2, 3),
            Survival(drafter.counts, 2),
            TargetCosts(),
            drafter,
            told=self.choices.append,
            shadows=False,
            clock=lambda: self.now,
        )

    def go_on(self, accepted: Sequence[int]) -> Budget | None:
        """A round or a token of a free run, as the controller will have it."""
        budget = self.controller.choose(FAR)
        if self.choices[-1].depth and len(self.choices) > 1 and self.choices[-2].depth == 0:
            budget = self.controller.choose(FAR)  # the run was halted for it
        if budget is None:
            self.now += 0.01
            self.controller.ran(RunTokens((0,), 0, 10_000, ALONE), 0.01)
            return None
        self.now += 0.0003
        self.controller.drafted(budget, Proposal(WIDE, "m", draft_us=200), 0.0003)
        self.now += 0.018
        evidence = Evidence((), forward_us=18_000, load=Load(1, 4, 0, 1))
        self.controller.verified(4, 64, evidence, 0.018)
        self.controller.decided(budget, "m", WIDE, accepted)
        return budget


@pytest.mark.parametrize("whole", [True, False])
def test_a_whole_tree_is_worth_what_the_walk_kept_of_it_wherever(whole: bool) -> None:
    session = Session(whole=whole)
    for _ in range(60):
        session.go_on([2, 3])
    curve = session.controller.state().curve
    assert (curve[1] > 0.8) == whole
    assert (curve[1] < 0.2) == (not whole)


def test_whole_trees_that_did_not_pay_are_tried_again_some_rounds_in_a_row() -> None:
    session = Session(whole=True)
    while session.go_on([]) is not None:
        pass
    for _ in range(3000):
        budget = session.go_on([])
        assert budget is None or (budget.depth, budget.nodes) == (2, 3)
    rounds = "".join("r" if choice.depth else "." for choice in session.choices)
    bursts = [burst for burst in rounds.split(".") if burst][1:]
    assert bursts
    assert all(len(burst) == PROBES + 1 for burst in bursts[:-1])  # asked twice for the first one
    spent = sum(len(burst) for burst in bursts) / len(rounds)
    assert spent < 0.02
    assert {choice.reason for choice in session.choices[-2000:] if choice.depth} == {Reason.PROBE}


def test_whole_trees_that_come_to_pay_are_found_out() -> None:
    session = Session(whole=True)
    while session.go_on([]) is not None:
        pass
    for _ in range(3000):
        session.go_on([2, 3])
    assert all(choice.depth for choice in session.choices[-100:])


def test_a_drafter_is_called_where_rounds_seem_to_pay_and_else_only_to_learn() -> None:
    session = Session(whole=False)
    controller = session.controller
    assert controller.calls(FAR)  # nothing is known of it
    assert not controller.calls(1)
    while session.go_on([]) is not None:
        pass
    controller._target.load = CROWD
    asked = len(session.choices)
    assert not controller.calls(FAR)
    assert len(session.choices) == asked + 1
    assert not controller.calls(FAR)  # what was seen is to do for some tokens
    assert len(session.choices) == asked + 1
    controller._target.load = ALONE  # but not once others have gone
    assert not controller.calls(FAR)
    assert len(session.choices) == asked + 2


def test_a_drafter_is_told_what_a_tree_must_promise() -> None:
    session = Session(whole=False)
    asked = [(session.go_on([2, 3]), session.choices[-1]) for _ in range(60)]
    trees = [(b, c) for b, c in asked if b is not None and b.nodes > b.depth]
    assert trees
    for budget, choice in trees:
        assert (budget.least_node, budget.least_level) == (choice.least_node, choice.least_level)
        assert budget.least_level > 0.0
