"""One tree of two: what a match in the text says beside a model's branches."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.round import Budget, Proposal
from outrider.core.tree import TreeBuilder


def merged(proposal: Proposal, other: Proposal | None, budget: Budget) -> Proposal:
    """A tree with the likeliest nodes of two that have the same root.

    They err apart: a node of both is missed where both are wrong. Its chance is then at most its
    parent's, so the best nodes are a tree.

    Args:
        proposal: returned as it is where its drafter cannot tell chances, as those of chains and of
            drawn children cannot.
        other: with chances; None where there is none.
        budget: most nodes, and the least chance of one.
    """
    if other is None or not other.tree.drafted or not proposal.chances:
        return proposal
    builder = TreeBuilder(proposal.tree.tokens[0])
    wrong = [1.0]
    for each in (proposal, other):
        places = [0]
        for node in range(1, len(each.tree)):
            place = builder.add(places[each.tree.parents[node]], each.tree.tokens[node])
            wrong += [1.0] * (len(builder) - len(wrong))
            wrong[place] *= 1.0 - each.chances[node]
            places.append(place)
    whole = builder.build()
    worth = (node for node in range(1, len(whole)) if 1.0 - wrong[node] >= budget.least_node)
    order = sorted(worth, key=lambda node: (wrong[node], whole.depths[node], node))
    kept = order[: budget.nodes]  # the likeliest of siblings first, as controllers expect
    made = TreeBuilder(whole.tokens[0])
    place_of = {0: 0}
    for node in kept:
        place_of[node] = made.add(place_of[whole.parents[node]], whole.tokens[node])
    chances = (1.0, *(1.0 - wrong[node] for node in kept))
    return replace(proposal, tree=made.build(), chances=chances)
