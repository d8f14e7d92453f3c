"""Budgets and counts of a request."""

from collections import Counter

import pytest

from orchestrator.controller import FixedDepth
from orchestrator.report import Report
from outrider.core.round import Evidence, Proposal
from outrider.core.tree import TokenTree


@pytest.mark.parametrize(
    ("remaining", "depth", "nodes"),
    [(100, 4, 4), (5, 4, 4), (4, 3, 3), (2, 1, 1)],
)
def test_chain_ends_one_token_before_what_remains(remaining: int, depth: int, nodes: int) -> None:
    budget = FixedDepth(4, 4, 32, 1.5, 0.2).choose(remaining)
    assert budget is not None
    assert (budget.depth, budget.nodes, budget.m, budget.time_left_s, budget.p_min) == (
        depth,
        nodes,
        32,
        1.5,
        0.2,
    )


def test_tree_keeps_its_nodes_where_its_depth_is_cut() -> None:
    budget = FixedDepth(4, 10, 32, 1.0).choose(3)
    assert budget is not None
    assert (budget.depth, budget.nodes) == (2, 10)


@pytest.mark.parametrize(("depth", "remaining"), [(0, 100), (4, 1), (4, 0)])
def test_nothing_to_draft_is_no_budget(depth: int, remaining: int) -> None:
    assert FixedDepth(depth, depth, 32, 1.0).choose(remaining) is None


def test_rounds_are_booked_by_depth_and_under_the_method_that_proposed() -> None:
    report = Report("auto")
    tree = TokenTree((1, 2, 3, 4), (-1, 0, 1, 0))  # depth 2, three nodes
    report.add_round("ngram", tree, 2, 3)
    report.add_round("ngram", tree, 0, 1)
    report.add_round("draft_model", TokenTree.chain(1, [2, 3, 4]), 1, 2)
    assert (report.rounds, report.passes, report.drafted, report.accepted, report.emitted) == (
        3,
        3,
        9,
        3,
        6,
    )
    assert report.drafted_per_position == [3, 3, 1]
    assert report.accepted_per_position == [2, 1]
    assert report.by_method == {
        "ngram": Counter(
            {"rounds": 2, "drafted:0": 2, "drafted:1": 2, "accepted:0": 1, "accepted:1": 1}
        ),
        "draft_model": Counter(
            {"rounds": 1, "drafted:0": 1, "drafted:1": 1, "drafted:2": 1, "accepted:0": 1}
        ),
    }


def test_pass_without_drafted_nodes_is_no_round() -> None:
    report = Report()
    report.add_round("ngram", TokenTree.root_only(1), 0, 1)
    assert (report.passes, report.rounds, report.emitted, report.by_method) == (1, 0, 0, {})


def test_times_add_up_also_where_no_proposal_came() -> None:
    report = Report()
    report.add_draft(None, 0.5)
    report.add_draft(Proposal(TokenTree.root_only(1), "ngram", draft_us=7, queue_us=3), 0.25)
    report.add_verify(Evidence((1,), forward_us=11, queue_us=2), 0.125)
    assert (report.draft_wait_us, report.draft_us) == (750_000, 7)
    assert (report.verify_wait_us, report.verify_us, report.queue_us) == (125_000, 11, 5)
