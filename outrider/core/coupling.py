"""Counter-based Gumbel noise: with a seed, the text is a function of (seed, prompt, target) alone.

The target draws argmax(log p + noise) (the Gumbel-max trick); a drafter that adds the same noise to
log q proposes the same token whenever q is close to p. The noise of a token is a pure function of
(seed, choice, position, token):

    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
    key     = the seed's low and high 32 bits
    counter = (choice, tokens before this one with the prompt counted, token id, 0)
    k       = the upper 53 of the first 64 output bits (word 0 in front)
    u       = (k + 0.5) 2^-53,  noise = -log(-log u)

A draw takes logarithms of few tokens. With e = -log u, a score is log(p / e), and e is at least
1 - u = (2^53 - k - 0.5) 2^-53: a token whose p / (1 - u) is below the best p / e so far cannot win,
and one whose p / 2^-54 is below it cannot win whatever its noise, which then is not computed.
"""

from __future__ import annotations

import numpy as np

from outrider.core.compiled import inline, kernel
from outrider.core.round import Ids, Probabilities

Word = np.uint64

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_LEFT, _RIGHT = np.uint64(21), np.uint64(11)
_ZERO = np.uint64(0)

_BITS = 53
_ONE, _MIDDLE = 1 << _BITS, 1 << (_BITS - 1)
_UNIT = 2.0**-_BITS
_LEAST_GAP = 0.5  # of 1 - u, in units of 2^-53: k is at most 2^53 - 1

_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits: its products with an exponent are exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SQRT_2, _SQRT_HALF = 2.0**0.5, 2.0**-0.5
_UPPER_BITS = -1 << 27  # 26 bits of the mantissa: the square is exact
_MANTISSA, _EXPONENT_OF_1 = (1 << 52) - 1, 1023
_SUBNORMAL, _LIFT = 2.0**-1022, 54

_CHUNK = 512
# Scores are rounded: their error is below 1e-12, and a token that loses by less is looked at.
_SLACK = 1.0 + 1e-9


@inline
def _philox(
    c0: Word, c1: Word, c2: Word, c3: Word, k0: Word, k1: Word
) -> tuple[Word, Word, Word, Word]:
    for _ in range(10):
        product0, product1 = _M0 * c0, _M1 * c2
        c0 = (product1 >> _HALF) ^ c1 ^ k0
        c1 = product1 & _LOW
        c2 = (product0 >> _HALF) ^ c3 ^ k1
        c3 = product0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@kernel
def philox(
    c0: Word, c1: Word, c2: Word, c3: Word, k0: Word, k1: Word
) -> tuple[Word, Word, Word, Word]:
    """Philox4x32-10 of a counter and a key, in words of 32 bits held in 64."""
    return _philox(c0, c1, c2, c3, k0, k1)


@inline
def _bits(seed: Word, choice: Word, position: Word, token: int) -> int:
    """k of a token."""
    word0, word1, _, _ = _philox(
        choice, position, np.uint64(token), _ZERO, seed & _LOW, seed >> _HALF
    )
    return np.int64((word0 << _LEFT) | (word1 >> _RIGHT))  # type: ignore[return-value]


@inline
def _log_reduced(f: float, exponent: float) -> float:
    """log((1 + f) 2^exponent), 1 + f within sqrt(1/2) and sqrt(2).

    log(1 + f) = 2 artanh(s) with s = f / (2 + f); the series up to s^23 leaves 1e-19.
    """
    s = f / (2.0 + f)
    t = s * s
    series = 2.0 / 23.0
    series = series * t + 2.0 / 21.0
    series = series * t + 2.0 / 19.0
    series = series * t + 2.0 / 17.0
    series = series * t + 2.0 / 15.0
    series = series * t + 2.0 / 13.0
    series = series * t + 2.0 / 11.0
    series = series * t + 2.0 / 9.0
    series = series * t + 2.0 / 7.0
    series = series * t + 2.0 / 5.0
    series = series * t + 2.0 / 3.0
    # f - f^2 / 2 + s (f^2 / 2 + series): the first terms with their rounding errors carried along.
    upper = np.int64(np.float64(f).view(np.int64) & _UPPER_BITS).view(np.float64)
    square, square_error = 0.5 * upper * upper, 0.5 * (f - upper) * (f + upper)
    first = f - square
    first_error = (f - first) - square - square_error
    whole = exponent * _LN2_HIGH
    total = whole + first
    total_error = (whole - total) + first
    rest = s * (0.5 * f * f + series * t) + exponent * _LN2_LOW
    return total + (total_error + (first_error + rest))


@kernel
def log(x: float) -> float:
    """log x for finite x > 0, within 0.75 units in the last place: what scores are made with."""
    lift = 0
    if x < _SUBNORMAL:
        x *= 2.0**_LIFT
        lift = _LIFT
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) - _EXPONENT_OF_1 - lift
    m = np.int64((bits & _MANTISSA) | (_EXPONENT_OF_1 << 52)).view(np.float64)
    if m > _SQRT_2:
        m *= 0.5
        exponent += 1
    return _log_reduced(m - 1.0, float(exponent))


@kernel
def noise(k: int) -> float:
    """-log(-log u) of 53 random bits k; u is never rounded to 1, where k + 0.5 needs 54 bits."""
    if k < _MIDDLE:
        return -log(-log((k + 0.5) * _UNIT))
    gap = ((_ONE - k) - 0.5) * _UNIT
    if gap < 1.0 - _SQRT_HALF:
        return -log(-_log_reduced(-gap, 0.0))
    return -log(-_log_reduced(1.0 - 2.0 * gap, -1.0))


@kernel
def _gumbel(seed: Word, choice: Word, position: Word, ids: Ids) -> Probabilities:
    values = np.empty(ids.size)
    for i in range(ids.size):
        values[i] = noise(_bits(seed, choice, position, ids[i]))
    return values


def gumbel(seed: int, choice: int, position: int, ids: Ids) -> Probabilities:
    """Noise [n] of the tokens ids [n] as candidates for the place behind `position` tokens.

    `seed` is an unsigned 64-bit number; `choice` and `position` are unsigned 32-bit.
    """
    return _gumbel(np.uint64(seed), np.uint64(choice), np.uint64(position), ids)


@kernel
def _winner(
    seed: Word, choice: Word, position: Word, ids: Ids, weights: Probabilities, slack: float
) -> int:
    """The place of the greatest log(weight) + noise, the first of equals; -1 without mass.

    slack: the factor by which the bound is taken too loosely.
    """
    bits = np.empty(_CHUNK, np.int64)
    winner, best = -1, -np.inf
    reach = 0.0  # weight / e of the winner, e in units of 2^-53
    for start in range(0, ids.size, _CHUNK):
        tokens = ids[start : start + _CHUNK]
        chunk = weights[start : start + _CHUNK]
        hits = 0
        for i in range(chunk.size):
            hits += chunk[i] * slack >= _LEAST_GAP * reach
        if not hits:
            continue
        for i in range(chunk.size):
            bits[i] = _bits(seed, choice, position, tokens[i])
        hits = 0
        for i in range(chunk.size):
            hits += chunk[i] * slack >= ((_ONE - bits[i]) - 0.5) * reach
        if not hits:
            continue
        for i in range(chunk.size):
            weight = chunk[i]
            if weight > 0.0 and weight * slack >= ((_ONE - bits[i]) - 0.5) * reach:
                value = noise(bits[i])
                score = log(weight) + value
                if score > best:
                    winner, best = start + i, score
                    reach = weight * np.exp(value) * _UNIT
    return winner


def winner(ids: Ids, weights: Probabilities, seed: int, choice: int, position: int) -> int:
    """The token that the noise chooses for the place behind `position` tokens.

    Args:
        ids: [n] ascending.
        weights: [n], p up to a factor, which the choice does not depend on beyond rounding.

    Raises:
        ValueError: no weight is above 0.
    """
    counter = np.uint64(choice), np.uint64(position)
    place = _winner(np.uint64(seed), *counter, ids, weights, _SLACK)
    if place < 0:
        raise ValueError("weights: none has mass, at least 1 is needed")
    return int(ids[place])


def seeded_draw(p: Probabilities, seed: int, choice: int, position: int) -> int:
    """The token that p [V] and the noise choose for the place behind `position` tokens."""
    return winner(np.arange(p.size), p, seed, choice, position)
