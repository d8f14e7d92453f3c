"""Kernels on a row of the vocabulary: weights exp((x - max) / T), their sum, a draw.

A row is walked in chunks of CHUNK elements, which the compiler turns into vectors. A sum has one
partial sum for each place in a chunk, and these are added in halves: an order that depends on the
row's length alone.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import numpy.typing as npt

from outrider.core.compiled import fused, inline, kernel

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

CHUNK, _BLOCK = 512, 64

_LOG2_E = 1.4426950408889634
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits: its products with an exponent are exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_ROUND = 1.5 * 2.0**52  # adding and taking it away rounds to an integer
_LEAST = -746.0  # exp of anything below is 0
_UP, _DOWN = 54, 2.0**-54  # the result is made 2^54 times too large: subnormals are rounded once
_F2, _F3, _F4, _F5, _F6, _F7, _F8, _F9, _F10, _F11, _F12, _F13 = (
    1.0 / factorial(n) for n in range(2, 14)
)


@inline
def _exp(z: float) -> float:
    """exp z for z <= 0, within one unit in the last place: 2^k exp r, |r| <= log(2) / 2.

    The series up to r^13 / 13! leaves 5e-18.
    """
    z = max(z, _LEAST)
    k = (z * _LOG2_E + _ROUND) - _ROUND
    r = (z - k * _LN2_HIGH) - k * _LN2_LOW
    s = r * r
    even = ((((_F12 * s + _F10) * s + _F8) * s + _F6) * s + _F4) * s + _F2
    odd = ((((_F13 * s + _F11) * s + _F9) * s + _F7) * s + _F5) * s + _F3
    scale = np.int64((np.int64(k) + np.int64(1023 + _UP)) << 52).view(np.float64)
    return (((even + odd * r) * s + r) + 1.0) * scale * _DOWN


@inline
def _halved(partial: Floats) -> float:
    """The sum of partial [CHUNK], which is overwritten."""
    half = CHUNK // 2
    while half:
        for i in range(half):
            partial[i] += partial[i + half]
        half //= 2
    return float(partial[0])


@fused
def weigh_into(
    logits: npt.NDArray[np.float32], peak: float, temperature: float, weights: Floats
) -> None:
    """exp((x - peak) / temperature) of every logit x [n] into weights [n]; peak is the greatest."""
    if temperature == 1.0:  # a division costs as much as the rest
        for i in range(logits.size):
            weights[i] = _exp(np.float64(logits[i]) - peak)
    else:
        for i in range(logits.size):
            weights[i] = _exp((np.float64(logits[i]) - peak) / temperature)


def weigh(logits: npt.NDArray[np.float32], peak: float, temperature: float) -> Floats:
    """The weights [n] of `weigh_into`."""
    weights = np.empty(logits.size)
    weigh_into(logits, peak, temperature, weights)
    return weights


@kernel
def greatest(values: npt.NDArray[np.float32]) -> float:
    """The greatest of values [n]; NaN where one is none."""
    most = np.full(CHUNK, -np.inf, np.float32)
    strange = 0
    for start in range(0, values.size, CHUNK):
        chunk = values[start : start + CHUNK]
        for i in range(chunk.size):
            most[i] = chunk[i] if chunk[i] > most[i] else most[i]
            strange += chunk[i] != chunk[i]
    return np.nan if strange else np.float64(most.max())


@fused
def total_weight(logits: npt.NDArray[np.float32], peak: float) -> float:
    """The sum of exp(x - peak) over the logits x [n]; peak is the greatest."""
    partial = np.zeros(CHUNK)
    for start in range(0, logits.size, CHUNK):
        chunk = logits[start : start + CHUNK]
        for i in range(chunk.size):
            partial[i] += _exp(np.float64(chunk[i]) - peak)
    return _halved(partial)


@kernel
def mass_up_to(weights: Floats, bound: float) -> float:
    """The sum of the weights [n] that are at most `bound`."""
    partial = np.zeros(CHUNK)
    for start in range(0, weights.size, CHUNK):
        chunk = weights[start : start + CHUNK]
        for i in range(chunk.size):
            partial[i] += chunk[i] if chunk[i] <= bound else 0.0
    return _halved(partial)


@kernel
def at_least(values: npt.NDArray[np.floating], bound: float) -> Positions:
    """Positions of the values [n] that are `bound` or more, ascending."""
    hits = np.zeros((values.size + _BLOCK - 1) // _BLOCK, np.int64)
    for block in range(hits.size):
        chunk = values[block * _BLOCK : (block + 1) * _BLOCK]
        count = 0
        for i in range(chunk.size):
            count += chunk[i] >= bound
        hits[block] = count
    total = hits.sum()
    found = np.empty(total + 1, np.int64)
    count = 0
    for block in range(hits.size):
        if hits[block]:  # within it a branch would be guessed wrong at most of the finds
            chunk = values[block * _BLOCK : (block + 1) * _BLOCK]
            for i in range(chunk.size):
                found[count] = block * _BLOCK + i
                count += chunk[i] >= bound
    return found[:total]


@kernel
def inverse(weights: Floats, uniform: float) -> int:
    """The position at `uniform` in [0, 1) of the mass of the weights [n]; never one without mass.

    -1 where none has mass.
    """
    ends = np.empty((weights.size + CHUNK - 1) // CHUNK)
    total = 0.0
    for chunk in range(ends.size):
        total += _sum(weights[chunk * CHUNK : (chunk + 1) * CHUNK])
        ends[chunk] = total
    wanted = uniform * total
    found = -1
    passed = 0.0
    for chunk in range(ends.size):
        if ends[chunk] > wanted:
            for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, weights.size)):
                if weights[i] > 0.0:
                    found = i
                    passed += weights[i]
                    if passed > wanted:
                        return found
            return found  # rounding: the last of the chunk
        passed = ends[chunk]
    return found


@inline
def _sum(chunk: Floats) -> float:
    a = b = c = d = 0.0
    rest = chunk.size - chunk.size % 4
    for i in range(0, rest, 4):
        a += chunk[i]
        b += chunk[i + 1]
        c += chunk[i + 2]
        d += chunk[i + 3]
    for i in range(rest, chunk.size):
        a += chunk[i]
    return (a + b) + (c + d)
