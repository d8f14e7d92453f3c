"""Warpers: from logits to the distribution that a token is taken from.

Order and meaning are those of transformers' processors: temperature, top-k (ties with the k-th
stay), top-p (the smallest set whose mass reaches top_p, at least one token), min-p. All arithmetic
is float64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.core.round import Probabilities, SamplingParams, TruncatedDistribution

Logits = npt.NDArray[np.float32]


def greedy(logits: Logits) -> int:
    """The likeliest token of logits [V]; the lowest id where several tie."""
    return int(np.argmax(logits))


def probabilities(logits: Logits, params: SamplingParams) -> Probabilities:
    """p [V] after every warper, from logits [V]; one-hot where the request is greedy."""
    if params.greedy:
        p = np.zeros(logits.shape[-1])
        p[greedy(logits)] = 1.0
        return p
    raw = logits.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to -inf
        p = np.exp((raw - raw.max()) / params.temperature)
    if 0 < params.top_k < p.size:
        p[raw < np.partition(raw, -params.top_k)[-params.top_k]] = 0.0
    p /= p.sum()
    if params.top_p < 1.0:
        p = _nucleus(p, params.top_p)
    if params.min_p > 0.0:
        p[p < params.min_p * p.max()] = 0.0
        p /= p.sum()
    return p


def _nucleus(p: Probabilities, top_p: float) -> Probabilities:
    """p [V] without its least likely tokens while their mass stays within 1 - top_p."""
    drop = 1.0 - top_p
    # Tokens no likelier than drop/V have at most `drop` together, so they go without being sorted.
    low = p <= drop / p.size
    # Where 1 - top_p rounds to 1 even the likeliest would go; it stays, the last of equals.
    low[p.size - 1 - np.argmax(p[::-1])] = False
    candidates = np.flatnonzero(~low)
    order = candidates[np.argsort(p[candidates], kind="stable")]
    removed = order[p[low].sum() + np.cumsum(p[order]) <= drop]
    if removed.size == order.size:
        removed = order[:-1]
    p[low] = 0.0
    p[removed] = 0.0
    return np.asarray(p / p.sum())


def draw(p: Probabilities, uniform: float) -> int:
    """The token of p [n] at `uniform` in [0, 1) of its mass; never one without mass."""
    cumulative = np.cumsum(p)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    if index >= p.size or p[index] <= 0.0:  # rounding at the upper end
        index = int(np.flatnonzero(p)[-1])
    return index


def truncate(q: Probabilities, m: int) -> TruncatedDistribution:
    """q~: the m likeliest tokens of q [V] that have mass, rounded to float32."""
    ids = np.flatnonzero(q)
    if ids.size > m:
        ids = np.sort(ids[np.argpartition(q[ids], -m)[-m:]])
    weights = (q[ids] / q[ids].sum()).astype(np.float32)
    kept = weights > 0.0
    return TruncatedDistribution(ids[kept].astype(np.int64), weights[kept])
