"""How a drafter takes the children of a node from its logits; one strategy for each kind of
request.

Under Match the drafter proposes what the target would draw if q were p: the argmax, or that of log
q plus the target's own noise. Under Rejection it draws from q~ and declares q~. A drafter with a
vocabulary of its own gives the target ids of its logits, ascending; tokens, noise and q~ are in
target ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.core.acceptance import draw_without_replacement
from outrider.core.coupling import gumbel, winner
from outrider.core.round import Budget, Ids, Probabilities, SamplingParams, TruncatedDistribution
from outrider.core.sampling import Law, Logits, largest, truncate, warp

# Candidates of several seeded children: the best lie outside them with the mass that q has there,
# which only costs acceptance.
_SEEDED_CANDIDATES = 1024


@dataclass(frozen=True)
class Children:
    """Tokens of a node's children, best or first drawn in front, and q~ where they were drawn."""

    tokens: list[int]
    drawn_from: TruncatedDistribution | None = None


NONE = Children([])

# (logits [V], number of children, tokens before the child, budget) -> children
Choose = Callable[[Logits, int, int, Budget], Children]


def strategy(
    sampling: SamplingParams, rng: np.random.Generator, vocabulary: Ids | None = None
) -> Choose:
    """How to choose for a request with these parameters.

    Args:
        sampling: the request's.
        rng: serves requests that draw.
        vocabulary: target id of each logit [V] ascending; None where they are the logits' places.
    """
    if sampling.greedy:
        return lambda logits, count, position, budget: _greedy(logits, count, budget, vocabulary)
    if sampling.draws:
        return lambda logits, count, position, budget: _drawn(
            logits, count, budget, sampling, rng, vocabulary
        )
    return lambda logits, count, position, budget: _seeded(
        logits, count, position, budget, sampling, vocabulary
    )


def _greedy(logits: Logits, count: int, budget: Budget, vocabulary: Ids | None) -> Children:
    if budget.p_min > 0.0 and warp(logits, SamplingParams()).peak < budget.p_min:
        return NONE
    if count == 1:
        best = int(np.argmax(logits))
        return Children([best if vocabulary is None else int(vocabulary[best])])
    likely = largest(logits, count)
    return Children(_best(_ids(vocabulary, likely), logits[likely], count))


def _seeded(
    logits: Logits,
    count: int,
    position: int,
    budget: Budget,
    sampling: SamplingParams,
    vocabulary: Ids | None,
) -> Children:
    q = warp(logits, sampling)
    if q.peak < budget.p_min or sampling.seed is None:
        return NONE
    if count == 1:
        ids = _ids(vocabulary, q.ids)
        return Children([winner(ids, q.weights, sampling.seed, sampling.choice, position)])
    ids, scores = noisy(q, position, sampling, vocabulary)
    return Children(_best(ids, scores, count))


def noisy(
    q: Law, position: int, sampling: SamplingParams, vocabulary: Ids | None
) -> tuple[Ids, Probabilities]:
    """The likeliest tokens of q [n] and log q plus the target's noise, up to a constant."""
    likely = largest(q.weights, _SEEDED_CANDIDATES)
    likely = likely[q.weights[likely] > 0.0]
    ids = _ids(vocabulary, q.ids[likely])
    noise = gumbel(sampling.seed or 0, sampling.choice, position, ids)
    return ids, np.log(q.weights[likely]) + noise


def _drawn(
    logits: Logits,
    count: int,
    budget: Budget,
    sampling: SamplingParams,
    rng: np.random.Generator,
    vocabulary: Ids | None,
) -> Children:
    q = warp(logits, sampling)
    # The stop depends on q's maximum alone: looking at the draw first would bias what is submitted.
    if q.peak < budget.p_min or budget.m < 1:
        return NONE
    q_cut = truncate(q.dense(), budget.m)
    if vocabulary is not None:
        q_cut = TruncatedDistribution(vocabulary[q_cut.ids], q_cut.weights)
    return Children(draw_without_replacement(q_cut, count, rng), q_cut)


def _ids(vocabulary: Ids | None, places: Ids) -> Ids:
    return places if vocabulary is None else vocabulary[places]


def _best(ids: npt.NDArray[np.int64], scores: Probabilities | Logits, count: int) -> list[int]:
    """The `count` ids of greatest score, best first; the lowest id of equals, as in the target."""
    if count < ids.size:
        kept = scores >= np.partition(scores, -count)[-count]
        ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))
    return [int(token) for token in ids[order[:count]]]
