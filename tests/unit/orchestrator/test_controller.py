"""The choice itself: what bounds and states lead to."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.company import ALONE, Times, settle
from orchestrator.controller import HORIZON, choose
from orchestrator.costs import Line, Mean, VerifyCost
from orchestrator.state import Bounds, Reason, State
from orchestrator.survival import Counts, Survival, survival
from orchestrator.value import Value
from outrider.core.promises import GOES_ON, LEVEL_NODES

FAR = 1000
CURVE = [0.8**depth for depth in range(1, 17)]
ANY = Bounds(0, 8, 8, 4)


def flat(rows: float) -> float:
    return 10_000.0


def state(**fields: object) -> State:
    known = State(CURVE, flat, Times(0.0, 500.0))
    return replace(known, **fields)  # type: ignore[arg-type]


def test_alone_it_takes_the_depth_of_the_table() -> None:
    """a = 0.8, c = 0.05: K = 8."""
    choice = choose(state(), Bounds(0, 16, 16, 4), FAR)
    assert (choice.depth, choice.nodes, choice.reason) == (8, 8, Reason.GAIN)


def test_without_a_measured_draft_it_takes_the_drafters_own_depth() -> None:
    choice = choose(state(times=Times()), ANY, FAR)
    assert (choice.depth, choice.reason) == (4, Reason.COLD)


def test_a_drafter_that_costs_more_than_it_brings_is_left_alone() -> None:
    choice = choose(state(times=Times(0.0, 9_000.0)), ANY, FAR)
    assert (choice.depth, choice.reason) == (0, Reason.NO_GAIN)


def test_load_is_told_from_bad_acceptance() -> None:
    def steep(rows: float) -> float:
        return 8_000.0 + 2_000.0 * max(0.0, rows - 8)

    times = Times(0.0, 500.0)
    crowd = settle(32, 64, CURVE[:8], times, steep)
    choice = choose(state(verify=steep, company=crowd), ANY, FAR)
    assert (choice.depth, choice.reason) == (0, Reason.LOADED)
    assert choose(state(verify=steep), ANY, FAR).depth > 0


@given(
    least=st.integers(0, 8),
    most=st.integers(1, 8),
    nodes=st.integers(1, 24),
    remaining=st.integers(0, 12),
    step=st.floats(1.0, 1e5),
    sibling=st.floats(0.0, 0.9),
    running=st.booleans(),
    sessions=st.integers(1, 64),
)
def test_bounds_hold_in_every_state(
    least: int,
    most: int,
    nodes: int,
    remaining: int,
    step: float,
    sibling: float,
    running: bool,
    sessions: int,
) -> None:
    least, nodes = min(least, most), max(nodes, most)
    times = Times(100.0, step)
    crowd = settle(sessions, 16, CURVE[:most], times, flat)
    known = state(times=times, sibling=sibling, running=running, company=crowd)
    choice = choose(known, Bounds(least, most, nodes, 4), remaining)
    assert choice.depth < max(remaining, 1)
    assert choice.depth <= most
    assert choice.depth <= choice.nodes <= nodes
    assert (choice.nodes == 0) == (choice.depth == 0)
    if least and remaining > 1:
        assert choice.depth >= min(least, remaining - 1)
    if nodes == most:
        assert choice.nodes == choice.depth  # a chain


@pytest.mark.parametrize("draft_step_us", [None, 1.0, 1e6])
def test_whole_trees_are_never_cut(draft_step_us: float | None) -> None:
    whole = Bounds(0, 4, 12, 4, whole=True)
    choice = choose(state(times=Times(0.0, draft_step_us)), whole, FAR)
    assert (choice.depth, choice.nodes) in {(4, 12), (0, 0)}
    assert (choice.depth == 0) == (draft_step_us == 1e6)


def test_siblings_are_added_where_they_catch_and_rows_are_cheap() -> None:
    wide = Bounds(0, 4, 16, 4)
    assert choose(state(sibling=0.5), wide, FAR).nodes == 16
    assert choose(state(sibling=0.0), wide, FAR).nodes == 4

    def dear(rows: float) -> float:
        return 5_000.0 * rows

    choice = choose(state(sibling=0.5, verify=dear, times=Times(0.0, 1.0)), wide, FAR)
    assert choice.nodes <= 4


def test_a_trees_nodes_and_levels_must_promise_what_they_cost() -> None:
    """Alone a row of 100 us and a step of 500 us cost what G makes meanwhile, others' rows more."""

    def sloped(rows: float) -> float:
        return 10_000.0 + 100.0 * rows

    wide, times = Bounds(0, 4, 16, 4), Times(0.0, 500.0)
    tree = choose(state(sibling=0.5, verify=sloped, times=times), wide, FAR)
    assert tree.nodes > tree.depth
    value = Value(state(sibling=0.5, verify=sloped, times=times), ALONE)
    tokens = value.tokens_for(1e-4, value.away(4), tree.nodes)
    assert value.drafting(value.away(4), tree.nodes, tokens) == pytest.approx(1e-4)
    # G is that of the tree, a little above the chain's
    least = value.drafting(value.away(tree.depth), tree.depth, value.emitted[tree.depth])
    assert 100.0 * least < tree.least_node < 1.2 * 100.0 * least
    step = 500.0 + LEVEL_NODES * 100.0
    assert tree.least_level == pytest.approx(tree.least_node * step / 100.0 / GOES_ON)
    crowd = settle(4, 64, CURVE[:4], times, sloped)
    company = choose(state(sibling=0.5, verify=sloped, times=times, company=crowd), wide, FAR)
    assert company.least_node > tree.least_node
    chain = choose(state(verify=sloped, times=times), ANY, FAR)
    assert (chain.least_node, chain.least_level) == (0.0, 0.0)


@pytest.mark.parametrize("fill", [0.0, 1e-9, 1.0])
@pytest.mark.parametrize("falls_at", [2, 5, 9])
def test_promises_are_never_negative_nor_undefined(fill: float, falls_at: int) -> None:
    """Where drafts came back empty, and where measured passes say that more rows take less."""

    def disturbed(rows: float) -> float:
        return 30_000.0 if rows < falls_at else 15_000.0

    known = state(sibling=0.9, verify=disturbed, times=Times(0.0, 1.0, fill=fill))
    choice = choose(known, Bounds(0, 4, 16, 4), FAR)
    assert choice.least_node >= 0.0
    assert choice.least_level >= 0.0


def test_a_run_is_left_only_for_a_gain_that_pays_for_the_change() -> None:
    dear = Times(0.0, 4_600.0)
    gain = choose(state(times=dear), ANY, FAR).gain
    assert 1.02 < gain < 1.3
    assert choose(state(times=dear, running=True), ANY, FAR).depth > 0
    costly = HORIZON * 1e6
    held = choose(state(times=dear, running=True, change_us=costly), ANY, FAR)
    assert (held.depth, held.reason) == (0, Reason.HELD)


def test_a_round_to_learn_from_is_paid_out_of_the_allowance() -> None:
    bad = state(curve=[0.1**d for d in range(1, 9)], times=Times(0.0, 3e3), running=True)
    assert choose(bad, ANY, FAR).depth == 0
    probe = choose(replace(bad, allowance=1.0), ANY, FAR)
    assert (probe.depth, probe.reason) == (1, Reason.PROBE)


def test_depth_grows_no_faster_than_the_logarithm_of_the_delay() -> None:
    curve = [0.8**d for d in range(1, 65)]
    depths = [
        choose(State(curve, flat, Times(delay, 500.0)), Bounds(1, 64, 64, 4), FAR).depth
        for delay in (1e4, 1e5, 1e6, 1e7)
    ]
    steps = [after - before for before, after in pairwise(depths)]
    assert all(0 < step <= 14 for step in steps), depths  # ln 10 / -ln 0.8 = 10.3


def test_company_of_one_is_nobody() -> None:
    assert settle(1, 64, CURVE, Times(0.0, 1.0), flat) is ALONE


def test_company_leaves_a_place_where_each_alone_would_stay() -> None:
    """A jump behind 32 rows: free runs of 32 stay below it, one more row lifts all."""

    def jump(rows: float) -> float:
        return 20_000.0 if rows <= 32 else 40_000.0

    times = Times(0.0, 1_000.0)
    assert settle(32, 64, [0.3**d for d in range(1, 9)], times, jump).depth == 0
    assert settle(32, 64, [0.99**d for d in range(1, 9)], times, jump).depth == 8


def test_survival_counts_only_positions_that_a_walk_came_to() -> None:
    counts = Counts()
    counts.add(asked=4, kept=2)
    counts.add(asked=2, kept=2)
    assert counts.tried == [2, 2, 1]
    assert counts.kept == [2, 2, 0]


def test_censored_rounds_do_not_bias_the_estimate() -> None:
    """Rounds of depth 1 and 4 in turn, all drafts kept: accepted over drafted is 1, and so is c."""
    own = Survival(Counts(), 4)
    for number in range(200):
        depth = 4 if number % 2 else 1
        own.book(depth, depth)
    assert min(own.curve()) > 0.8


def test_a_break_in_acceptance_is_believed_within_rounds() -> None:
    own = Survival(Counts(), 4)
    for _ in range(200):
        own.book(4, 4)
    before = own.curve()[0]
    for _ in range(8):
        own.book(4, 0)
    assert own.curve()[0] < 0.6 * before


def test_a_new_session_starts_from_the_shared_counts_and_moves_their_level() -> None:
    shared = Counts([100.0] * 4, [90.0, 50.0, 90.0, 90.0])
    own = Survival(shared, 4)
    assert own.curve() == survival(shared.rates(4))
    for _ in range(30):
        own.book(1, 0)
    rates = [b / a for a, b in pairwise(own.curve())]
    assert rates[0] < 0.2  # depths that it never saw are worse than usual, too
    assert rates[1] > rates[0]  # but keep their shape


def test_age_gives_the_shared_rates_their_weight_back() -> None:
    own = Survival(Counts([100.0], [90.0]), 1)
    for _ in range(50):
        own.book(1, 0)
    low = own.curve()[0]
    own.age(0.01)
    assert low < 0.3 < 0.7 < own.curve()[0]


def test_line_separates_the_fixed_part_once_depths_vary() -> None:
    line = Line()
    line.add(4, 1_000.0)
    assert line.fit() == pytest.approx((0.0, 250.0))
    for depth in (1, 2, 4, 8) * 50:
        line.add(depth, 500.0 + 200.0 * depth)
    fixed, step = line.fit()
    assert fixed == pytest.approx(500.0, rel=0.15)
    assert step == pytest.approx(200.0, rel=0.1)


def test_live_passes_correct_the_start_up_profile() -> None:
    cost = VerifyCost([(1, 64, 10_000), (8, 64, 20_000), (64, 64, 90_000)])
    assert cost(4.5) == pytest.approx(15_000)
    for _ in range(100):
        cost.learn(1, 20_000)
        cost.learn(8, 60_000)
    assert cost(1) == pytest.approx(20_000, rel=0.1)
    assert cost(8) == pytest.approx(60_000, rel=0.1)


@pytest.mark.parametrize("profile", [[], [(1, 64, 4_000), (8, 64, 8_000)]], ids=["none", "one"])
def test_a_stall_of_single_rows_is_forgotten_while_only_trees_are_verified(
    profile: list[tuple[int, int, int]],
) -> None:
    cost = VerifyCost(profile)
    for rows in (1, 2, 4):
        cost.learn(rows, 5_000)
    for _ in range(3):
        cost.learn(1, 20_000)
    assert cost(1) > 9_000  # so far nothing says that it was a stall
    for _ in range(20):
        cost.learn(2, 5_000)
    assert cost(1) <= 1.01 * cost(2)
    assert cost(2) == pytest.approx(5_000, rel=0.1)


def test_p95_is_that_of_the_last_samples() -> None:
    mean = Mean()
    for value in range(1, 101):
        mean.add(float(value))
    assert mean.p95 == 97.0
