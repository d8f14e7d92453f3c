"""The likeliest children of a node in order, with what they score: for trees under Match.

A greedy request scores log q. A seeded one scores log q plus the target's noise, normalised over
its candidates: how likely a token is to win the draw that the target will make with the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from draft_service.drafters.choose import noisy
from outrider.core.likeliest import ranked
from outrider.core.round import Budget, Ids, SamplingParams
from outrider.core.sampling import Logits, warp


@dataclass(frozen=True)
class Ranked:
    """Tokens, best first, and their scores: logarithms, none above 0."""

    tokens: list[int]
    scores: list[float]


NOTHING = Ranked([], [])

# (logits [rows, V], number of tokens, tokens before them, budget) -> of each row, ranked
Rank = Callable[[Logits, int, int, Budget], list[Ranked]]


def ranking(sampling: SamplingParams, vocabulary: Ids | None = None) -> Rank:
    """How to rank for a request with these parameters; `vocabulary` as `choose.strategy` has it.

    Where q's maximum lies below the budget's p_min there is nothing to rank.
    """

    def by_noise(logits: Logits, count: int, position: int, budget: Budget) -> list[Ranked]:
        return [one_by_noise(row, count, position, budget) for row in logits]

    def one_by_noise(logits: Logits, count: int, position: int, budget: Budget) -> Ranked:
        q = warp(logits, sampling)
        if q.peak < budget.p_min:
            return NOTHING
        ids, scores = noisy(q, position, sampling, vocabulary)
        top = scores.max()
        scores = scores - top - np.log(np.exp(scores - top).sum())
        order = np.lexsort((ids, -scores))[:count]
        return Ranked(ids[order].tolist(), np.minimum(scores[order], 0.0).tolist())

    def by_probability(logits: Logits, count: int, position: int, budget: Budget) -> list[Ranked]:
        places, scores = ranked(logits, count)
        ids = places if vocabulary is None else vocabulary[places]
        least = math.log(budget.p_min) if budget.p_min > 0.0 else -math.inf
        return [
            NOTHING if score[0] < least else Ranked(row, score)
            for row, score in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    ranked(np.zeros((1, 1), np.float32), 1)  # compiled now, not in a proposal's time
    return by_probability if sampling.greedy or sampling.seed is None else by_noise
