"""The exact law of the first tokens, and the test of observed counts against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy import stats

LEAST_EXPECTED = 5.0


def g_test(counts: npt.NDArray[np.float64], law: npt.NDArray[np.float64]) -> float:
    """p-value of a G-test of counts against a law of the same shape; cells under 5 are pooled.

    A count where the law has no mass gives 0.
    """
    observed, law = counts.ravel(), law.ravel()
    if observed[law == 0].any():
        return 0.0
    expected = law * (observed.sum() / law.sum())
    small = expected < LEAST_EXPECTED
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if (
        0 < expected[-1] < LEAST_EXPECTED
    ):  # the pool itself may be too small: it joins the least cell
        least = int(np.argmin(expected[:-1]))
        observed[least] += observed[-1]
        expected[least] += expected[-1]
        expected[-1] = 0
    kept = expected > 0
    return float(
        stats.power_divergence(observed[kept], expected[kept], lambda_="log-likelihood").pvalue
    )


def joint_law(
    next_law: Callable[[Sequence[int]], npt.NDArray[np.float64]],
    prompt: Sequence[int],
    vocab: int,
    tokens: int,
) -> npt.NDArray[np.float64]:
    """P [vocab, vocab, ...] of the first `tokens` tokens, from the law of the next one."""
    law = np.ones(())
    for length in range(tokens):
        rows = [next_law([*prompt, *path]) for path in product(range(vocab), repeat=length)]
        law = law[..., None] * np.reshape(rows, (vocab,) * length + (vocab,))
    return law
