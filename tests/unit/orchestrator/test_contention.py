"""What drafts take from the target's steps: told from the steps' own time, and spent sparingly."""

from __future__ import annotations

import random

import pytest

from orchestrator.company import Times, settle
from orchestrator.contention import OVERDUE_US, Drafting
from orchestrator.costs import VerifyCost
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.probes import AFTER, LITTLE, SHARE, Probes
from orchestrator.state import State
from orchestrator.value import Value
from outrider.core.round import Load

PROFILE = [(rows, 256, 8_000 + 250 * rows) for rows in (1, 2, 4, 8, 16, 32, 64)]
CURVE = [0.6**depth for depth in range(1, 9)]


def affine(rows: float) -> float:
    return 8_000.0 + 250.0 * rows


def test_a_moment_of_drafting_counts_once() -> None:
    drafting = Drafting()
    drafting.add(0.0, 10.0)
    drafting.add(2.0, 10.0)  # of one batch with the first
    drafting.add(20.0, 30.0)
    assert drafting.within(5.0, 25.0) == 10.0
    assert drafting.within(-5.0, 100.0) == 20.0
    assert drafting.within(10.0, 20.0) == 0.0
    assert drafting.own == pytest.approx(2.0 / 3.0)


def test_drafting_is_known_when_all_who_asked_before_are_answered_or_overdue() -> None:
    drafting = Drafting()
    drafting.ask(1, 100.0)
    drafting.ask(2, 300.0)
    assert drafting.known(50.0, 400.0)
    assert not drafting.known(200.0, 400.0)
    drafting.answered(1)
    assert drafting.known(200.0, 400.0)
    assert not drafting.known(350.0, 400.0)
    assert drafting.known(350.0, 301.0 + OVERDUE_US)
    assert not drafting._asked  # sessions that end without an answer leave nothing behind


@pytest.mark.parametrize("drag", [0.0, 0.5, 1.5])
def test_drag_and_mood_are_told_apart_while_every_step_meets_drafts(drag: float) -> None:
    """A machine 1.5 times as slow as when it was measured; drafts of 2 to 12 ms in every step."""
    chance, cost = random.Random(3), VerifyCost(PROFILE)
    for _ in range(20):
        cost.learn(4, int(1.5 * affine(4)))
    for _ in range(300):
        met = chance.uniform(2_000.0, 12_000.0)
        alone = 1.5 * affine(8) * chance.uniform(0.9, 1.1)
        cost.learn(8, int(alone + drag * met), met)
    assert cost.drag == pytest.approx(drag, abs=0.15)
    assert cost(4) == pytest.approx(1.5 * affine(4), rel=0.2)


def test_without_the_drafts_the_same_steps_would_make_the_target_slow() -> None:
    """What the filter is there for: the steps' time alone says nothing of K=0."""
    cost = VerifyCost(PROFILE)
    for _ in range(300):
        cost.learn(8, int(affine(8) + 1.5 * 8_000))
    assert cost(4) > 1.7 * affine(4)


def test_a_step_is_learnt_from_once_and_not_before_its_drafts_are_known() -> None:
    target = TargetCosts(VerifyCost(PROFILE))
    target.drafting.ask(7, 1_000.0)
    for told_at in (20_000.0, 20_100.0, 20_200.0):  # by each of three sessions
        target.stepped(Load(3, 4, 0, 3), 19_000, told_at)
    assert target.verify.passes == 0
    target.drafting.answered(7)
    target.drafting.add(5_000.0, 13_000.0)
    target.stepped(Load(3, 4, 0, 3), 9_000, 40_000.0)
    assert target.verify.passes == 2
    assert target.verify.drag > 0.8
    assert target.verify(4) == pytest.approx(9_000, rel=0.2)


def test_a_session_that_opens_is_counted_before_the_target_says_so() -> None:
    target = TargetCosts()
    target.joined(3)
    assert target.load.sessions == 3
    target.joined(2)  # others are there besides
    assert target.load.sessions == 3


def test_company_that_shares_its_cores_with_drafts_leaves_them_alone() -> None:
    apart = Times(500.0, 1_000.0, 500.0, 300.0)
    shared = Times(500.0, 1_000.0, 500.0, 300.0, drag=1.0)
    assert settle(4, 64, CURVE, apart, affine).depth > 0
    assert settle(4, 64, CURVE, shared, affine).depth == 0
    company = settle(4, 64, CURVE, shared, affine)
    value = Value(State(CURVE, affine, shared, company), company)
    assert value.taken(0) == 0.0
    assert value.taken(4) > value.taken(1) > 0.0  # tokens that the others lose meanwhile
    assert value.emitted[4] == pytest.approx(1.0 + sum(CURVE[:4]) - value.taken(4))


class Session:
    """Probes of one session on a target whose steps lose all the time that drafts take."""

    def __init__(self, drafter: DraftCosts) -> None:
        self.now = 0.0
        target = TargetCosts()
        target.verify.drag = 1.0
        self.probes = Probes(target, drafter, lambda: self.now)


def known_drafter() -> DraftCosts:
    drafter = DraftCosts()
    for depth in (1, 2, 4):
        drafter.line.add(depth, 1_000.0 * depth)
    return drafter


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_shadow_drafts_of_all_sessions_share_what_may_be_spent(gain: float) -> None:
    drafter = known_drafter()
    one, other = Session(drafter), Session(drafter)
    for session in (one, other):
        assert not session.probes.due
        session.probes.ran(AFTER)
        assert session.probes.due
    one.probes.take(4, gain)
    assert not other.probes.due
    share = SHARE if gain == 1.0 else SHARE * LITTLE
    other.now = 0.99 * 0.004 / share
    assert not other.probes.due
    other.now = 1.1 * 0.004 / share
    assert other.probes.due


def test_a_drafter_called_for_a_shadow_draft_is_paid_for_with_its_prefill() -> None:
    drafter = known_drafter()
    drafter.opening.add(20_000.0)
    session, other = Session(drafter), Session(drafter)
    for each in (session, other):
        each.probes.ran(AFTER)
    session.probes.call(4, 1.0)
    assert session.probes.due  # reserved
    other.now = 0.9 * 0.024 / SHARE
    assert not other.probes.due
    session.probes.take(4, 1.0)
    other.now = 1.1 * 0.024 / SHARE
    assert other.probes.due
