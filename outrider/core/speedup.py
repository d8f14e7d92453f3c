"""When speculation pays: expected tokens, improvement and the best K.

Notation: a is the chance that a drafted token is accepted (independent and equal for all positions,
Leviathan et al., arXiv 2211.17192, section 3), c the cost of one draft step and v(n) that of a
target pass over n rows, both in units of a target pass over one row, o the fixed overhead of a
round in the same unit.

Derivation: the first i drafts are all kept with chance a^i, so a chain of K keeps sum_{i=1..K} a^i
tokens in the mean and emits one more: E(K) = (1 - a^(K+1)) / (1 - a). A round costs
c K + v(K+1) + o, so the improvement over plain decoding (one token a pass) is
S(K) = E(K) / (c K + v(K+1) + o). With measured survival s_i (the chance that the first i drafts
are kept; s_0 = 1) E(K) = sum_{i=0..K} s_i, without any assumption of independence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

VerifyCost = Callable[[int], float]


def flat(rows: int) -> float:
    """v(n) = 1: rows are free, as on a memory-bound target."""
    return 1.0


def expected_tokens(acceptance: float, k: int) -> float:
    """E(K): tokens emitted per round with a chain of k drafts, recovered or bonus included.

    Raises:
        ValueError: acceptance outside 0 to 1, or k below 0.
    """
    _check(acceptance, k)
    if acceptance == 1.0:
        return float(k + 1)
    return float((1.0 - acceptance ** (k + 1)) / (1.0 - acceptance))


def expected_accepted(acceptance: float, k: int) -> float:
    """Drafts kept per round: E(K) - 1."""
    return expected_tokens(acceptance, k) - 1.0


def expected_tokens_from_survival(survival: Sequence[float]) -> float:
    """E(K) from s_1..s_K: 1 + their sum.

    Raises:
        ValueError: a value outside 0 to 1, or one above its predecessor.
    """
    last = 1.0
    for position, value in enumerate(survival):
        if not 0.0 <= value <= last:
            raise ValueError(f"survival[{position}]: {value}, limit 0 to {last}")
        last = value
    return 1.0 + sum(survival)


def improvement(
    acceptance: float,
    k: int,
    draft_cost: float,
    verify_cost: VerifyCost = flat,
    overhead: float = 0.0,
) -> float:
    """S(K): how much faster than plain decoding; below 1 speculation hurts."""
    return _ratio(expected_tokens(acceptance, k), k, draft_cost, verify_cost, overhead)


def best_k(
    acceptance: float,
    draft_cost: float,
    verify_cost: VerifyCost = flat,
    overhead: float = 0.0,
    k_max: int = 64,
) -> int:
    """The K of 0..k_max with the greatest S(K), the smallest of equals.

    K = 0 is plain decoding, S = 1 by definition.
    """
    survival = [acceptance**i for i in range(1, k_max + 1)]
    return best_k_from_survival(survival, draft_cost, verify_cost, overhead)


def best_k_from_survival(
    survival: Sequence[float],
    draft_cost: float,
    verify_cost: VerifyCost = flat,
    overhead: float = 0.0,
) -> int:
    """The K of 0..len(survival) with the greatest S(K), given s_1, s_2, ..."""
    expected_tokens_from_survival(survival)
    best, best_gain, tokens = 0, 1.0, 1.0
    for k, value in enumerate(survival, start=1):
        tokens += value
        gain = _ratio(tokens, k, draft_cost, verify_cost, overhead)
        if gain > best_gain:
            best, best_gain = k, gain
    return best


def _ratio(
    tokens: float, k: int, draft_cost: float, verify_cost: VerifyCost, overhead: float
) -> float:
    return tokens / (draft_cost * k + verify_cost(k + 1) / verify_cost(1) + overhead)


def _check(acceptance: float, k: int) -> None:
    if not 0.0 <= acceptance <= 1.0:
        raise ValueError(f"acceptance: {acceptance}, limit 0 to 1")
    if k < 0:
        raise ValueError(f"k: {k}, limit at least 0")
