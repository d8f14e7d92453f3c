"""The two walk rules that decide a round.

p is the target's distribution after every warper, q the drafter's.

Match: children that were not drawn (top-k, n-grams; all greedy and all seeded decoding). The target
draws x ~ p at every node; the walk descends into the child that carries x and emits x where none
does. The emitted law is p because x is, whatever the tree holds.

Rejection: children c_1..c_k drawn without replacement from q~ (speculative sampling, Leviathan et
al., arXiv 2211.17192; several siblings, Miao et al., arXiv 2305.09781). With p^1 = p and q^i = q~
restricted to the ids not yet tried: accept c_i with min(1, p^i/q^i), else p^{i+1} =
norm((p^i - q^i)+); behind the last child, emit from the residual. Each step leaves the law
unchanged: min(p, q) + (p - q)+ = p.

q~ has m ids. Outside them every residual is p up to scale, so p on the m ids, its mass outside and
one token drawn from p outside are all the evidence that exactness needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from outrider.core.round import Evidence, NodeEvidence, TruncatedDistribution
from outrider.core.sampling import draw
from outrider.core.tree import TokenTree

# Drawing siblings stops when less than this is left of q~: renormalising a tinier rest would
# amplify rounding.
LEAST_REMAINING_MASS = 1e-6

Uniform = Callable[[], float]


class EvidenceError(ValueError):
    """Evidence does not fit the tree that it answers."""


class Kind(Enum):
    """Where a committed token came from; DESIGN words."""

    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    PLAIN = "plain"


@dataclass(frozen=True)
class Decision:
    """What a round commits.

    accepted: node indices from the root's child down.
    emitted: the token behind them.
    kind: RECOVERED where the walk left a node that had children, BONUS at a drafted leaf,
        PLAIN at a bare root.
    """

    accepted: tuple[int, ...]
    emitted: int
    kind: Kind


def decide(
    tree: TokenTree,
    drawn_from: Mapping[int, TruncatedDistribution],
    evidence: Evidence,
    uniform: Uniform,
) -> Decision:
    """Walks `tree` from the root.

    Args:
        drawn_from: q~ of each node whose children were drawn; all other nodes fall under Match.
        uniform: fresh numbers in [0, 1), independent of the draft and of the target's samples.

    Raises:
        EvidenceError: a sample or a distribution is missing.
    """
    if len(evidence.samples) != len(tree):
        raise EvidenceError(f"evidence.samples: {len(evidence.samples)} for {len(tree)} nodes")
    node = 0
    accepted: list[int] = []
    while True:
        children = tree.children[node]
        child: int | None
        if node in drawn_from:
            if node not in evidence.nodes:
                raise EvidenceError(f"evidence.nodes: nothing for node {node}")
            tokens = [tree.tokens[c] for c in children]
            place, token = reject(
                tokens, drawn_from[node], evidence.nodes[node], evidence.samples[node], uniform
            )
            child = None if place is None else children[place]
        else:
            token = evidence.samples[node]
            child = tree.child_with(node, token)
        if child is None:
            return Decision(tuple(accepted), _real(token, node), _kind(node, bool(children)))
        accepted.append(child)
        node = child


def reject(
    tokens: Sequence[int],
    q: TruncatedDistribution,
    evidence: NodeEvidence,
    outside_sample: int,
    uniform: Uniform,
) -> tuple[int | None, int]:
    """Rejection at one node.

    Args:
        tokens: the children's tokens in draw order.
        outside_sample: a token drawn from p outside q~'s ids; -1 where p has no mass there.

    Returns:
        (place of the accepted child, its token), or (None, the token drawn from the residual).

    Raises:
        EvidenceError: p has another number of ids than q~, or no finite mass.
    """
    if evidence.probabilities.shape != q.ids.shape:
        raise EvidenceError(
            f"evidence.nodes: {evidence.probabilities.size} probabilities, limit {q.ids.size}"
        )
    total = float(evidence.probabilities.sum()) + evidence.outside
    if not 0.0 < total < math.inf:
        raise EvidenceError(f"evidence.nodes: mass {total:g}, limit above 0 and finite")
    p, outside = evidence.probabilities / total, evidence.outside / total
    rest = q.probabilities.copy()
    for place, token in enumerate(tokens):
        index = int(np.searchsorted(q.ids, token))
        # u q < p rather than u <= p/q: a token with p = 0 is refused even where u is exactly 0.
        if uniform() * rest[index] < p[index]:
            return place, token
        residual = np.maximum(p - rest, 0.0)
        mass = float(residual.sum()) + outside
        if mass > 0.0:  # p = q leaves nothing but rounding: p itself stays
            p, outside = residual / mass, outside / mass
        rest[index] = 0.0
        remaining = float(rest.sum())
        if remaining <= 0.0:
            break
        rest /= remaining
    if uniform() < outside or not p.any():
        return None, outside_sample
    return None, int(q.ids[draw(p, uniform())])


def draw_without_replacement(
    q: TruncatedDistribution, count: int, rng: np.random.Generator
) -> list[int]:
    """Up to `count` distinct tokens drawn from q~ one after the other, in draw order.

    Ends early where less than LEAST_REMAINING_MASS of q~ is left. Every token drawn must be
    submitted.
    """
    rest = q.probabilities.copy()
    tokens: list[int] = []
    while len(tokens) < count and rest.sum() >= LEAST_REMAINING_MASS:
        index = draw(rest, rng.random())
        tokens.append(int(q.ids[index]))
        rest[index] = 0.0
    return tokens


def _kind(node: int, had_children: bool) -> Kind:
    if had_children:
        return Kind.RECOVERED
    return Kind.BONUS if node else Kind.PLAIN


def _real(token: int, node: int) -> int:
    if token < 0:
        raise EvidenceError(f"evidence.samples: none for node {node}, where one is due")
    return token
