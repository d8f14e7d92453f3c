"""The greedy optimiser finds the tree of greatest expected length."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from draft_service.drafters.medusa_tree import expected, places, usual

ACCURACIES = ((0.5, 0.2, 0.1), (0.4, 0.25, 0.05), (0.3, 0.1, 0.02))


def _best_of_all(nodes: int) -> float:
    """Over every set of `nodes` rank paths that holds its parents."""
    paths = [path for depth in (1, 2, 3) for path in product(range(3), repeat=depth)]
    chance = {}
    for path in paths:
        value = 1.0
        for level, rank in enumerate(path):
            value *= ACCURACIES[level][rank]
        chance[path] = value
    top = sorted(paths, key=lambda path: -chance[path])[: nodes + 6]
    closed = (
        chosen
        for chosen in combinations(top, nodes)
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen)
    )
    return 1.0 + max(sum(chance[path] for path in chosen) for chosen in closed)


@pytest.mark.parametrize("nodes", [4, 5, 6])
def test_no_tree_of_the_size_is_expected_to_emit_more(nodes: int) -> None:
    tree = places(ACCURACIES, 3, nodes)
    assert len(tree) == nodes
    assert expected(ACCURACIES, tree) == pytest.approx(_best_of_all(nodes))


def test_parents_come_first_and_no_place_comes_twice() -> None:
    tree = places(usual(4), 4, 30)
    assert len({(p.parent, p.rank) for p in tree}) == len(tree) == 30
    for index, place in enumerate(tree, 1):
        assert place.parent < index
        assert place.level == (0 if place.parent == 0 else tree[place.parent - 1].level + 1)


def test_few_nodes_are_a_chain_of_best_ranks() -> None:
    assert [(p.parent, p.level, p.rank) for p in places(ACCURACIES, 3, 3)] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
    ]


def test_heads_and_ranks_bound_the_tree() -> None:
    assert len(places(((0.5, 0.2),), 4, 9)) == 2
