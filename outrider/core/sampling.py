"""Warpers: from logits to the distribution that a token is taken from.

Order and meaning are those of transformers' processors: temperature, top-k (ties with the k-th
stay), top-p (the smallest set whose mass reaches top_p, at least one token), min-p. All arithmetic
is float64, and a law is a function of its row of logits alone, to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from outrider.core import weights as kernels
from outrider.core.coupling import gumbel, winner
from outrider.core.nucleus import nucleus, weigh_rows
from outrider.core.round import Ids, Probabilities, SamplingParams, TruncatedDistribution

Logits = npt.NDArray[np.float32]

_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Law:
    """A distribution over a vocabulary by the tokens that may have mass: p = weights / total.

    Shapes: ids [n] ascending, weights [n] float64, of which some may be 0.
    """

    ids: Ids
    weights: Probabilities
    total: float
    vocabulary: int

    @classmethod
    def of(cls, p: Probabilities) -> Law:
        """The law with the probabilities p [V], or anything in proportion to them."""
        return cls(_all(p.size), p, _mass(p), p.size)

    @property
    def peak(self) -> float:
        """The probability of the likeliest token."""
        return float(self.weights.max()) / self.total

    def dense(self) -> Probabilities:
        """p [V]."""
        if self.ids.size == self.vocabulary:
            return np.asarray(self.weights / self.total)
        p = np.zeros(self.vocabulary)
        p[self.ids] = self.weights / self.total
        return p

    def at(self, ids: Ids) -> Probabilities:
        """p of `ids` [m]."""
        places, present = self._places(ids)
        return np.where(present, self.weights[places], 0.0) / self.total

    def outside(self, ids: Ids) -> tuple[Law, float]:
        """The law given that none of `ids` [m] is taken, and p's mass there.

        The mass is a sum of its own, not 1 minus the rest. Where it is 0 nothing may be drawn.
        """
        places, present = self._places(ids)
        weights = self.weights.copy()
        weights[places[present]] = 0.0
        total = _mass(weights)
        return Law(self.ids, weights, total, self.vocabulary), total / self.total

    def draw(self, uniform: float) -> int:
        """The token at `uniform` in [0, 1) of the mass, in the order of ids."""
        return int(self.ids[draw(self.weights, uniform)])

    def seeded_draw(self, seed: int, choice: int, position: int) -> int:
        """The token that the seed's noise chooses for the place behind `position` tokens."""
        return winner(self.ids, self.weights, seed, choice, position)

    def _places(self, ids: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Where `ids` stand among the law's, and which of them do."""
        if self.ids.size == self.vocabulary:
            return ids, np.ones(ids.shape, np.bool_)
        places = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        return places, self.ids[places] == ids


def greedy(logits: Logits) -> int:
    """The likeliest token of logits [V]; the lowest id where several tie."""
    return int(np.argmax(logits))


def warp(logits: Logits, params: SamplingParams) -> Law:
    """The law after every warper, from logits [V]; one token where the request is greedy.

    Raises:
        ValueError: no logit is finite, or one is infinite or no number.
    """
    size = logits.size
    if params.greedy:
        return Law(np.array([greedy(logits)]), np.ones(1), 1.0, size)
    peak = _peak(logits)
    ids, candidates = _all(size), np.ascontiguousarray(logits, np.float32)
    if 0 < params.top_k < size:
        ids = largest(candidates, params.top_k)
        candidates = candidates[ids]
    weights = kernels.weigh(candidates, peak, params.temperature)
    total = _mass(weights)
    kept = nucleus(weights, total, params.top_p) if params.top_p < 1.0 else None
    return _law(ids, weights, total, kept, params, size)


def warp_rows(logits: Logits, params: SamplingParams) -> list[Law]:
    """`warp` of each row [n, V], the same to the bit, on all threads of the kernels.

    Raises:
        ValueError: see `warp`.
    """
    rows, size = logits.shape
    if rows == 1 or params.greedy or 0 < params.top_k < size:
        return [warp(row, params) for row in logits]
    weights, places = np.empty((rows, size)), np.empty((rows, size), np.int64)
    totals, counts = weigh_rows(
        np.ascontiguousarray(logits), params.temperature, params.top_p, weights, places
    )
    laws = []
    for row in range(rows):
        if math.isnan(totals[row]):
            _peak(logits[row])  # raises
        kept = places[row, : counts[row]] if params.top_p < 1.0 else None
        laws.append(_law(_all(size), weights[row], float(totals[row]), kept, params, size))
    return laws


def _peak(logits: Logits) -> float:
    peak = float(logits.max())
    if not math.isfinite(peak):
        raise ValueError(f"logits: the greatest is {peak}, limit finite")
    return peak


def _law(
    ids: Ids,
    weights: Probabilities,
    total: float,
    inside: Ids | None,
    params: SamplingParams,
    size: int,
) -> Law:
    """The law of what top-p keeps (places in `ids`), cut by min-p."""
    if inside is not None:
        ids, weights = ids[inside], weights[inside]
        total = _mass(weights)
    if params.min_p > 0.0:  # the likeliest has weight 1
        kept = kernels.at_least(weights, params.min_p)
        ids, weights = ids[kept], weights[kept]
        total = _mass(weights)
    return Law(ids, weights, total, size)


def probabilities(logits: Logits, params: SamplingParams) -> Probabilities:
    """p [V] after every warper, from logits [V]; one-hot where the request is greedy."""
    return warp(logits, params).dense()


def largest(values: npt.NDArray[np.floating], count: int) -> Ids:
    """Places of the `count` greatest of values [n], ascending; those equal to the last stay too."""
    blocks = values.size // _BLOCK
    places = _all(values.size)
    if count <= blocks:  # as many blocks have a greatest value that is no less than this bound
        greatest = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        places = kernels.at_least(values, np.partition(greatest, -count)[-count])
    if count >= places.size:
        return places
    chosen = values[places]
    return np.asarray(places[chosen >= np.partition(chosen, -count)[-count]])


def draw(p: Probabilities, uniform: float) -> int:
    """The token of p [n] at `uniform` in [0, 1) of its mass; never one without mass."""
    return kernels.inverse(p, uniform)


def truncate(q: Probabilities, m: int) -> TruncatedDistribution:
    """q~: the m likeliest tokens of q [V] that have mass, rounded to float32."""
    ids = largest(q, m)
    ids = ids[q[ids] > 0.0]
    if ids.size > m:  # of several equal to the last
        ids = np.sort(ids[np.argpartition(q[ids], -m)[-m:]])
    weights = (q[ids] / q[ids].sum()).astype(np.float32)
    kept = weights > 0.0
    return TruncatedDistribution(ids[kept].astype(np.int64), weights[kept])


def prepare() -> None:
    """Compiles every kernel or loads it from disk: the first request then need not wait for it."""
    law = warp(
        np.arange(2.0 * _BLOCK, dtype=np.float32), SamplingParams(top_k=1, top_p=0.5, min_p=0.5)
    )
    warp_rows(np.zeros((2, 2 * _BLOCK), np.float32), SamplingParams(top_p=0.5))
    law.draw(0.5)
    law.seeded_draw(0, 0, 0)
    truncate(law.dense(), 1)
    gumbel(0, 0, 0, law.ids)


def _mass(weights: Probabilities) -> float:
    return kernels.mass_up_to(weights, math.inf)


@lru_cache(maxsize=8)
def _all(size: int) -> Ids:
    """Every id, shared between laws: nobody writes to a law's ids."""
    return np.arange(size)
