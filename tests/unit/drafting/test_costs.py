"""What auto knows of the cost of drafts, and asks of trees."""

from __future__ import annotations

import pytest
from played import GREEDY, Clock, Played, ask

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.costs import Costs, demanding
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.tree import TokenTree


def a_chain(nodes: int) -> Proposal:
    return Proposal(TokenTree.chain(1, list(range(nodes))), "model")


def test_a_tree_costs_what_trees_took_and_before_any_less_than_the_budget_allows() -> None:
    costs, tree, chain = Costs(), Budget(4, 12), Budget(4, 4)
    assert costs.tree("model", tree) == (6, 0.0)
    costs.add("model", [chain], [a_chain(4)], 0.04)
    assert costs.level_s("model") == pytest.approx(0.01)
    assert costs.tree("model", tree) == (6, pytest.approx(0.02))
    costs.add("model", [tree, tree, chain], [a_chain(2), a_chain(4), a_chain(1)], 0.02)
    assert costs.tree("model", tree) == (pytest.approx(3.0), pytest.approx(0.02))
    assert costs.tree("model", Budget(1, 2)) == (2, pytest.approx(0.02))
    assert costs.tree("other", tree) == (6, 0.0)


def test_more_is_demanded_where_drafting_brings_more_and_costs_more() -> None:
    cheap = demanding(Budget(4, 12), rate=1.2, row=0.02, level=0.05)
    dear = demanding(Budget(4, 12), rate=1.2, row=0.1, level=0.05)
    slow = demanding(Budget(4, 12), rate=1.2, row=0.02, level=0.2)
    better = demanding(Budget(4, 12), rate=2.4, row=0.02, level=0.05)
    assert cheap.least_node == pytest.approx(0.024)
    assert dear.least_node == pytest.approx(0.12)
    assert slow.least_node == cheap.least_node
    assert slow.least_level > cheap.least_level
    assert better.least_node == pytest.approx(2 * cheap.least_node)
    assert better.least_level == pytest.approx(2 * cheap.least_level)


@pytest.mark.parametrize("draws", [False, True])
def test_auto_demands_of_trees_alone_and_where_nothing_is_drawn_lets_them_grow_deep(
    draws: bool,
) -> None:
    clock = Clock()
    model = Played("model", clock=clock)
    model.recommended_depth = 2
    auto = AutoDrafter([model], clock)
    session = auto.open([1], SamplingParams(temperature=1.0) if draws else GREEDY)
    for _ in range(40):
        proposal = ask(auto, session, Budget(4, 5))
        clock.now += 0.02
        auto.observe(session, [*proposal.tree.tokens[1:], 9])
    trees = [budget for budget in model.budgets if budget.nodes > budget.depth]
    chains = [budget for budget in model.budgets if budget.nodes == budget.depth]
    assert {budget.depth for budget in trees} == {2 if draws else 4}
    assert all(budget.least_node > 0.0 and budget.least_level > 0.0 for budget in trees)
    assert all(budget.least_node == budget.least_level == 0.0 for budget in chains)
