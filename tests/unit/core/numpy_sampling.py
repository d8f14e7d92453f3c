"""The law and the seeded draw as formulas in NumPy: slow, short, and what the kernels must give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.core.round import SamplingParams

Floats = npt.NDArray[np.float64]


def probabilities(
    logits: npt.NDArray[np.float32], params: SamplingParams, tighter: float = 0.0
) -> Floats:
    """p [V] after every warper. `tighter` moves the thresholds of top_p and min_p by that share of
    what they let go."""
    raw = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        p = np.exp((raw - raw.max()) / params.temperature)
    if 0 < params.top_k < p.size:
        p[raw < np.sort(raw)[-params.top_k]] = 0.0
    p /= p.sum()
    if params.top_p < 1.0:
        order = np.argsort(p, kind="stable")
        gone = np.cumsum(p[order]) <= (1.0 - params.top_p) * (1.0 + tighter)
        gone[-1] = False
        p[order[gone]] = 0.0
        p /= p.sum()
    if params.min_p > 0.0:
        p[p < min(params.min_p * (1.0 + tighter), 1.0) * p.max()] = 0.0
        p /= p.sum()
    return p


def philox(counter: list[npt.NDArray[np.uint64]], key: list[int]) -> list[npt.NDArray[np.uint64]]:
    """Philox4x32-10 on arrays of counters; words are 32 bits held in uint64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = counter
    for step in range(10):
        k0 = np.uint64((key[0] + step * 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64((key[1] + step * 0xBB67AE85) & 0xFFFFFFFF)
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> shift) ^ c1 ^ k0, b & low, (a >> shift) ^ c3 ^ k1, a & low
    return [c0, c1, c2, c3]


def gumbel(seed: int, choice: int, position: int, ids: npt.NDArray[np.int64]) -> Floats:
    """Noise [n] of the tokens ids [n]."""
    words = ids.astype(np.uint64)
    full = [np.full_like(words, choice), np.full_like(words, position), words, words * np.uint64(0)]
    word0, word1, _, _ = philox(full, [seed & 0xFFFFFFFF, seed >> 32])
    k = (word0 << np.uint64(21)) | (word1 >> np.uint64(11))
    upper = k >= np.uint64(1 << 52)
    below = (np.where(upper, 0, k).astype(np.float64) + 0.5) * 2.0**-53
    gap = (np.where(upper, np.uint64(1 << 53) - k, 1).astype(np.float64) - 0.5) * 2.0**-53
    return np.asarray(-np.log(np.where(upper, -np.log1p(-gap), -np.log(below))))


def seeded_draw(p: Floats, seed: int, choice: int, position: int) -> int:
    """argmax(log p + noise) over the tokens with mass."""
    ids = np.flatnonzero(p)
    return int(ids[np.argmax(np.log(p[ids]) + gumbel(seed, choice, position, ids))])


def draw(p: Floats, uniform: float) -> int:
    """The token at `uniform` of the mass, in the order of ids."""
    cumulative = np.cumsum(p)
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
