"""The dynamic tree is what a search over all paths finds, and never loses a parent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from draft_service.drafters.growth import Growth
from draft_service.drafters.rank import Ranked
from outrider.core.round import Budget

Path = tuple[int, ...]
Law = Callable[[Path], np.ndarray]
VOCAB = 4


def _law(seed: int) -> Law:
    def log_q(path: Path) -> np.ndarray:
        logits = 2.0 * np.random.default_rng([seed, *path]).standard_normal(VOCAB)
        return logits - np.log(np.exp(logits).sum())

    return log_q


def _grown(log_q: Law, depth: int, nodes: int, width: int, branch: int = VOCAB) -> Growth:
    growth = Growth(0, Budget(depth, nodes), width, branch)
    frontier = growth.frontier
    while frontier:
        ranked = []
        for node in frontier:
            scores = log_q(tuple(growth.tokens[n] for n in growth.path(node)))
            order = np.argsort(-scores, kind="stable")[: growth.branch]
            ranked.append(Ranked(order.tolist(), np.minimum(scores[order], 0.0).tolist()))
        frontier = growth.grow(ranked)
    return growth


def _paths(growth: Growth) -> set[Path]:
    tree = growth.build("eagle").tree
    return {tuple(tree.tokens[node] for node in tree.path(leaf)) for leaf in range(1, len(tree))}


def _score(log_q: Law, path: Path) -> float:
    return sum(float(log_q(path[:i])[token]) for i, token in enumerate(path))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("nodes", [1, 3, 7, 15])
def test_a_wide_tree_is_the_best_of_all_paths(seed: int, nodes: int) -> None:
    log_q = _law(seed)
    paths = [path for d in (1, 2, 3) for path in product(range(VOCAB), repeat=d)]
    best = sorted(paths, key=lambda path: (-_score(log_q, path), len(path)))[:nodes]
    assert _paths(_grown(log_q, 3, nodes, width=VOCAB**3)) == set(best)


def _eagle2(log_q: Law, depth: int, nodes: int, width: int) -> set[Path]:
    """As the paper says it: expand the best of each level whatever may come, then rerank."""
    frontier: list[Path] = [()]
    scored: dict[Path, float] = {}
    for _ in range(depth):
        level = {
            (*path, token): _score(log_q, (*path, token))
            for path in frontier
            for token in range(VOCAB)
        }
        scored |= level
        frontier = sorted(level, key=lambda path: -level[path])[:width]
    best = sorted(scored, key=lambda path: (-scored[path], len(path)))
    return set(best[:nodes])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("nodes", [4, 9])
def test_frontier_nodes_that_would_be_cut_change_nothing(seed: int, nodes: int) -> None:
    log_q = _law(seed)
    assert _paths(_grown(log_q, 4, nodes, width=2)) == _eagle2(log_q, 4, nodes, width=2)


def test_of_equal_scores_the_parents_stay() -> None:
    growth = _grown(lambda path: np.array([0.0, -9.0, -9.0, -9.0]), 6, 3, width=2)
    assert _paths(growth) == {(0,), (0, 0), (0, 0, 0)}


def test_a_node_without_children_ends_its_branch() -> None:
    growth = Growth(5, Budget(3, 4))
    assert growth.grow([Ranked([1, 2], [-0.5, -1.0])]) == [1, 2]
    assert growth.grow([Ranked([], []), Ranked([3], [-0.1])]) == [3]
    assert growth.grow([Ranked([], [])]) == []
    tree = growth.build("eagle").tree
    assert tree.tokens == (5, 1, 2, 3)
    assert tree.parents == (-1, 0, 0, 2)


def test_nodes_and_levels_that_promise_too_little_are_left_out() -> None:
    def grown(budget: Budget) -> tuple[Growth, int]:
        growth, levels = Growth(7, budget), 0
        while growth.frontier:  # two children of 0.5 and 0.25 each
            ranked = [Ranked([1, 2], [np.log(0.5), np.log(0.25)]) for _ in growth.frontier]
            growth.grow(ranked)
            levels += 1
        return growth, levels

    whole, levels = grown(Budget(3, 99))
    assert (whole.build("eagle").tree.drafted, levels) == (14, 3)
    few, levels = grown(Budget(3, 99, least_node=0.2))
    proposal = few.build("eagle")
    assert sorted(proposal.chances[1:]) == pytest.approx([0.25, 0.25, 0.5])
    assert levels == 3  # the path of 0.25 is expanded; nothing of it stays
    _, levels = grown(Budget(3, 99, least_level=0.6))  # 0.75, then 0.5625 lead on
    assert levels == 2
