"""How a text goes on, from what followed its ending before: the tree and what it is worth.

Every ending of the text that occurred earlier is a context. A context of n occurrences says that a
token follows with its share of the n, a part of it given to the token that followed last, because
texts drift. Contexts of several lengths are blended from the longest down, each taking the share
`trust(length)` of what longer ones left over (as in prediction by partial matching, Cleary and
Witten, 1984): the longer the match, the more it is worth, and one that goes on in one way only is
not diluted. The probability of a path is the product along it, and the sum over the nodes of a tree
is the number of its tokens that will be accepted, in expectation (SuffixDecoding, arXiv
2411.04975, scores by the same sum).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from outrider.core.round import Budget
from outrider.core.tree import TokenTree, TreeBuilder

Place = TypeVar("Place")

LEAST = 0.1
"""Where the budget names no chance below which a node is not worth its row: one that is kept less
often costs the target more than it brings, for each row costs a twentieth of a pass or more."""

RECENT = 0.3
"""Share of a context that goes to its most recent continuation."""

MOST_FOLLOWERS = 32
"""A context that went on in more ways says little, and reading it takes long."""


def trust(length: int) -> float:
    """How often the continuation of a match of `length` tokens is right; fitted to greedy text:
    0.25, 0.51, 0.66, 0.69, 0.72 for one to five tokens, 0.9 from nine on."""
    return max(0.25, 1.0 - 1.0 / length)


@dataclass(frozen=True)
class Follower(Generic[Place]):
    """A token that followed a context: how often, where last, and the place behind it."""

    token: int
    count: int
    end: int
    place: Place


@dataclass(frozen=True)
class Context(Generic[Place]):
    """An ending of `length` tokens that occurred before, and what followed it."""

    length: int
    followers: Sequence[Follower[Place]]


class Source(Protocol[Place]):
    """Where continuations come from. A place is the end of a path through earlier text."""

    def start(self) -> Place | None:
        """The place of the text's end; None where nothing like it occurred before."""

    def contexts(self, place: Place) -> Iterable[Context[Place]]:
        """What followed the endings of the path to a place before, the longest ending first."""


@dataclass(frozen=True)
class Draft:
    """A tree, the probability of the path to each of its nodes, and their sum without the root."""

    tree: TokenTree
    paths: tuple[float, ...]

    @property
    def score(self) -> float:
        """Expected accepted tokens."""
        return sum(self.paths[1:])


def guesses(
    source: Source[Place], place: Place, scale: float = 1.0
) -> dict[int, tuple[float, Place]]:
    """The probability of each token behind a place, and the place behind the token.

    Args:
        scale: what all probabilities are multiplied with: 1 where `trust` fits the text.
    """
    found: dict[int, tuple[float, Place]] = {}
    left = 1.0
    for context in source.contexts(place):
        if not context.followers or len(context.followers) > MOST_FOLLOWERS:
            continue
        weight = left * trust(context.length)
        total = sum(follower.count for follower in context.followers)
        last = max(follower.end for follower in context.followers)
        for follower in context.followers:
            share = (1.0 - RECENT) * follower.count / total + RECENT * (follower.end == last)
            known, then = found.get(follower.token, (0.0, follower.place))
            found[follower.token] = known + scale * weight * share, then
        left -= weight
        if left < LEAST:
            break
    return {token: (min(chance, 1.0), then) for token, (chance, then) in found.items()}


def draft(source: Source[Place], root: int, budget: Budget, scale: float = 1.0) -> Draft:
    """The best tree within the budget: the likeliest nodes first, children behind parents.

    A chain where the budget has no more nodes than depth. It ends where the path's probability
    falls below what the budget asks of a node, or a node's own below the budget's p_min; all
    children are unsampled.
    """
    tree = TreeBuilder(root)
    paths = [1.0]
    chain, least = budget.nodes <= budget.depth, budget.least_node or LEAST
    waiting: list[tuple[float, int, int, int, int, Place]] = []
    pushed = 0

    def push(node: int, place: Place, depth: int) -> None:
        nonlocal pushed
        found = guesses(source, place, scale)
        likely = [
            (paths[node] * chance, token, then)
            for token, (chance, then) in found.items()
            if chance >= budget.p_min and paths[node] * chance >= least
        ]
        if chain and likely:
            likely = [max(likely, key=lambda guess: guess[0])]
        for path, token, then in likely:
            pushed += 1  # earlier ones first where paths are equal; places are never compared
            heapq.heappush(waiting, (-path, pushed, node, token, depth + 1, then))

    start = source.start()
    if start is not None and min(budget.depth, budget.nodes) > 0:
        push(0, start, 0)
    while waiting and len(tree) <= budget.nodes:
        path, _, parent, token, depth, place = heapq.heappop(waiting)
        node = tree.add(parent, token)
        paths.append(-path)
        if depth < budget.depth:
            push(node, place, depth)
    return Draft(tree.build(), tuple(paths))
