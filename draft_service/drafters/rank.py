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
from outrider.core.likeliest import likeliest
from outrider.core.round import Budget, Ids, SamplingParams
from outrider.core.sampling import Logits, warp


@dataclass(frozen=True)
class Ranked:
    """Tokens, best first, and their scores: logarithms, none above 0."""

    tokens: list[int]
    scores: list[float]


NOTHING = Ranked([], [])

# (logits [V], number of tokens, tokens before them, budget) -> ranked
Rank = Callable[[Logits, int, int, Budget], Ranked]


def ranking(sampling: SamplingParams, vocabulary: Ids | None = None) -> Rank:
    """How to rank for a request with these parameters; `vocabulary` as `choose.strategy` has it.

    Where q's maximum lies below the budget's p_min there is nothing to rank.
    """

    def by_noise(logits: Logits, count: int, position: int, budget: Budget) -> Ranked:
        q = warp(logits, sampling)
        if q.peak < budget.p_min:
            return NOTHING
        ids, scores = noisy(q, position, sampling, vocabulary)
        top = scores.max()
        return _ranked(ids, scores - top - np.log(np.exp(scores - top).sum()), count)

    def by_probability(logits: Logits, count: int, position: int, budget: Budget) -> Ranked:
        likely = likeliest(logits, count)
        peak = float(logits[likely[0]])
        if not math.isfinite(peak):
            raise ValueError(f"logits: the greatest is {peak}, limit finite")
        total = float(np.exp(logits - peak).sum())
        if 1.0 / total < budget.p_min:
            return NOTHING
        scores = logits[likely].astype(np.float64) - (peak + math.log(total))
        ids = likely if vocabulary is None else vocabulary[likely]
        return Ranked(ids.tolist(), np.minimum(scores, 0.0).tolist())

    likeliest(np.zeros(1, np.float32), 1)  # compiled now, not in a proposal's time
    return by_probability if sampling.greedy or sampling.seed is None else by_noise


def _ranked(ids: Ids, scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], n: int) -> Ranked:
    order = np.lexsort((ids, -scores))[:n]
    return Ranked(ids[order].tolist(), np.minimum(scores[order], 0.0).tolist())
