"""Counter-based Gumbel noise: with a seed, the text is a function of (seed, prompt, target) alone.

The target draws argmax(log p + noise) (the Gumbel-max trick); a drafter that adds the same noise to
log q proposes the same token whenever q is close to p. The noise of a token is a pure function of
(seed, choice, position, token):

    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
    key     = the seed's low and high 32 bits
    counter = (choice, tokens before this one with the prompt counted, token id, 0)
    k       = the upper 53 of the first 64 output bits (word 0 in front)
    u       = (k + 0.5) 2^-53,  noise = -log(-log u)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.core.round import Ids, Probabilities

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_BITS = 53

Words = npt.NDArray[np.uint64]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, ...]:
    """Philox4x32-10 on arrays of counters; words are 32 bits held in uint64, all of shape [n]."""
    c0, c1, c2, c3 = counter
    for step in range(10):
        k0 = np.uint64((key[0] + step * _WEYL[0]) & 0xFFFFFFFF)
        k1 = np.uint64((key[1] + step * _WEYL[1]) & 0xFFFFFFFF)
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
    return c0, c1, c2, c3


def gumbel(seed: int, choice: int, position: int, ids: Ids) -> Probabilities:
    """Noise [n] of the tokens ids [n] as candidates for the place behind `position` tokens.

    `seed` is an unsigned 64-bit number; `choice` and `position` are unsigned 32-bit.
    """
    ids64 = ids.astype(np.uint64)
    full = np.full_like(ids64, choice), np.full_like(ids64, position), ids64, np.zeros_like(ids64)
    word0, word1, _, _ = philox(full, (seed & 0xFFFFFFFF, seed >> 32))
    k = (word0 << np.uint64(21)) | (word1 >> np.uint64(11))
    return np.asarray(-np.log(_minus_log_uniform(k)))


def _minus_log_uniform(k: Words) -> Probabilities:
    """-log((k + 0.5) 2^-53) without rounding u to 1, where k + 0.5 needs 54 bits."""
    upper = k >= np.uint64(1 << (_BITS - 1))
    below = (np.where(upper, 0, k).astype(np.float64) + 0.5) * 2.0**-_BITS
    gap = (np.where(upper, np.uint64(1 << _BITS) - k, 1).astype(np.float64) - 0.5) * 2.0**-_BITS
    return np.where(upper, -np.log1p(-gap), -np.log(below))


def seeded_scores(
    p: Probabilities, seed: int, choice: int, position: int
) -> tuple[Ids, Probabilities]:
    """Ids with mass [n] and their scores log p + noise [n], for p [V]."""
    ids = np.flatnonzero(p).astype(np.int64)
    return ids, np.log(p[ids]) + gumbel(seed, choice, position, ids)


def seeded_draw(p: Probabilities, seed: int, choice: int, position: int) -> int:
    """The token that p [V] and the noise choose for the place behind `position` tokens."""
    ids, scores = seeded_scores(p, seed, choice, position)
    return int(ids[np.argmax(scores)])
