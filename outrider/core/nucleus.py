"""Kernels for top-p: the nucleus of a row of weights, and the laws of rows together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.core.compiled import kernel, parallel, prange
from outrider.core.weights import (
    CHUNK,
    Floats,
    Positions,
    at_least,
    greatest,
    mass_up_to,
    weigh_into,
)

_FIRST_SHIFT, _STEP = 49, 11  # buckets of an eighth of an octave first, then of 11 bits more
_FEW = 64
_BISECTIONS = 3  # of the candidates' range in octaves, before they are looked at one by one


@kernel
def nucleus(weights: Floats, total: float, top_p: float) -> Positions:
    """Positions of the fewest weights [n] whose share of `total` reaches top_p, at least one.

    The least weights go while all that went have at most (1 - top_p) of the total; of equal ones
    the first go first. Nothing is sorted but a last handful.
    """
    budget = (1.0 - top_p) * total
    # All weights up to `low` go: n of at most budget / n have at most the budget together.
    low, high = budget / weights.size, budget
    gone = mass_up_to(weights, low)
    for _ in range(_BISECTIONS if weights.size > CHUNK else 0):
        middle = np.sqrt(low * high)
        mass = mass_up_to(weights, middle)
        if mass <= budget:
            low, gone = middle, mass
        else:
            high = middle
    above = at_least(weights, np.nextafter(low, np.inf))
    if above.size == 0:  # 1 - top_p rounds to 1
        above = at_least(weights, weights.max())[-1:]
    least, first = _least_kept(weights, above, gone, budget)
    count = 0
    for position in above:
        weight = weights[position]
        above[count] = position
        count += (weight > least) | ((weight == least) & (position >= first))
    return above[:count].copy()


@parallel
def weigh_rows(
    logits: npt.NDArray[np.float32],
    temperature: float,
    top_p: float,
    weights: Floats,
    kept: Positions,
) -> tuple[Floats, Positions]:
    """`weigh` of rows [n, V] into weights [n, V], their masses [n], and the nuclei.

    Where top_p is below 1 the first counts [n] of a row of kept [n, V] are its nucleus. The mass of
    a row whose greatest logit is not finite is NaN, and nothing else is said of it.
    """
    totals, counts = np.empty(logits.shape[0]), np.zeros(logits.shape[0], np.int64)
    for row in prange(logits.shape[0]):
        mine, peak = weights[row], greatest(logits[row])
        totals[row] = np.nan
        if not np.isfinite(peak):
            continue
        weigh_into(logits[row], peak, temperature, mine)
        total = mass_up_to(mine, np.inf)
        totals[row] = total
        if top_p < 1.0:
            positions = nucleus(mine, total, top_p)
            kept[row, : positions.size] = positions
            counts[row] = positions.size
    return totals, counts


@kernel
def _least_kept(weights: Floats, above: Positions, gone: float, budget: float) -> tuple[float, int]:
    """The least weight that stays and the first position at which it does.

    A radix selection on the bits of the weights, which are ordered as the weights are.

    Args:
        above: positions of the weights that may stay, ascending, at least one.
        gone: the mass of all others.
    """
    keys = weights[above].view(np.int64)
    places = above.copy()
    shift = _FIRST_SHIFT
    while keys.size > _FEW and keys.min() != keys.max():
        low = keys.min() >> shift
        buckets = np.zeros((keys.max() >> shift) - low + 1)
        for i in range(keys.size):
            buckets[(keys[i] >> shift) - low] += weights[places[i]]
        chosen = 0
        while chosen < buckets.size - 1 and gone + buckets[chosen] <= budget:
            gone += buckets[chosen]
            chosen += 1
        inside = (keys >> shift) - low == chosen
        keys, places = keys[inside], places[inside]
        shift = max(shift - _STEP, 0)
    for i in range(1, places.size):  # by insertion: a handful, or many that are equal
        moved, j = places[i], i
        while j and weights[places[j - 1]] > weights[moved]:
            places[j] = places[j - 1]
            j -= 1
        places[j] = moved
    for place in places:
        gone += weights[place]
        if gone > budget:
            return weights[place], place
    return weights[places[-1]], places[-1]
