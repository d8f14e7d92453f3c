"""A merged tree has the likeliest nodes of both, and auto merges what is not drawn."""

from __future__ import annotations

import numpy as np
import pytest
from played import GREEDY, Clock, Played, ask

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.merge import merged
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import DraftSession
from outrider.drafting.ngram import NgramDrafter

Path = tuple[int, ...]


def a_tree(rng: np.random.Generator, nodes: int) -> Proposal:
    """Few tokens, so that paths of two trees meet."""
    paths: dict[Path, float] = {(): 1.0}
    for _ in range(nodes):
        parent = list(paths)[rng.integers(len(paths))]
        path = (*parent, int(rng.integers(3)))
        paths.setdefault(path, paths[parent] * float(rng.uniform(0.2, 1.0)))
    places = {path: place for place, path in enumerate(paths)}
    tokens = tuple(path[-1] if path else 7 for path in paths)
    parents = tuple(places[path[:-1]] if path else -1 for path in paths)
    return Proposal(TokenTree(tokens, parents), "made", chances=tuple(paths.values()))


def chances_of(proposal: Proposal) -> dict[Path, float]:
    tree = proposal.tree
    paths = [tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree))]
    return dict(zip(paths, proposal.chances, strict=True))


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("nodes", [1, 5, 30])
def test_no_other_nodes_of_both_are_likelier(seed: int, nodes: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = a_tree(rng, 8), a_tree(rng, 6)
    found = chances_of(merged(one, other, Budget(9, nodes)))
    ours, theirs = chances_of(one), chances_of(other)
    both = {
        path: 1.0 - (1.0 - ours.get(path, 0.0)) * (1.0 - theirs.get(path, 0.0))
        for path in {*ours, *theirs}
    }
    best = sorted((chance for path, chance in both.items() if path), reverse=True)[:nodes]
    assert sorted((c for path, c in found.items() if path), reverse=True) == pytest.approx(best)
    assert all(chance == pytest.approx(both[path]) for path, chance in found.items())
    assert list(found.values()) == sorted(found.values(), reverse=True)  # siblings too


def test_what_cannot_be_merged_stays() -> None:
    chain = Proposal(TokenTree.chain(7, [1, 2]), "drawn")
    tree = a_tree(np.random.default_rng(0), 5)
    empty = Proposal(TokenTree.root_only(7), "ngram", chances=(1.0,))
    assert merged(chain, tree, Budget(9, 9)) is chain
    assert merged(tree, None, Budget(9, 9)) is tree
    assert merged(tree, empty, Budget(9, 9)) is tree


class Wide(Played):
    """Two children, which it takes for as likely as not; a chain, and one that draws, tell none."""

    def one(self, session: DraftSession, budget: Budget) -> Proposal:
        if session.sampling.draws or budget.nodes <= budget.depth:
            return super().one(session, budget)
        tree = TokenTree((session.tokens[-1], 50, 51), (-1, 0, 0))
        return Proposal(tree, self.method, chances=(1.0, 0.5, 0.4))


@pytest.mark.parametrize(
    ("sampling", "budget", "merges"),
    [
        (GREEDY, Budget(4, 6), True),
        (GREEDY, Budget(4, 4), False),
        (SamplingParams(temperature=1.0), Budget(4, 6), False),
    ],
)
def test_auto_takes_a_doubtful_match_into_a_tree_that_was_not_drawn(
    sampling: SamplingParams, budget: Budget, merges: bool
) -> None:
    auto = AutoDrafter([NgramDrafter(), Wide("model")], Clock())
    # What followed 5 before is one token of two: worth a node, less than the model's promise.
    session = auto.open([5, 60, 1, 2, 5, 61, 3, 4, 5], sampling)
    proposal = ask(auto, session, budget)
    assert proposal.method == "model"
    assert (proposal.tree.child_with(0, 61) is not None) is merges
    assert proposal.tree.child_with(0, 50) is not None
