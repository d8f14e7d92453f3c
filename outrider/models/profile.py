"""How long a pass takes, by its rows and by what is cached before them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.pool import PoolFullError

ROWS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (64, 512, 2048)
BUDGET_S = 3.0
MOST_ROUNDS = 5


@dataclass(frozen=True)
class PassTime:
    """Least microseconds of a pass of `rows` rows behind `context` cached ones, its head included,
    as a verification of rows - 1 drafted nodes takes it."""

    rows: int
    context: int
    forward_us: int


def profile(
    lm: CausalLM, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.perf_counter
) -> list[PassTime]:
    """Times of passes, few rows first; leaves the model's pool as it found it.

    Rounds over all sizes, at most `MOST_ROUNDS`, until `budget_s` seconds have passed; sizes that a
    slow model did not reach, or for which context or pool have no room, are left out.
    """
    sizes = [
        (rows, context)
        for rows in ROWS
        for context in CONTEXTS
        if context + rows <= lm.context_length
    ]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(lm.vocab_size, (max(ROWS),), generator=generator).tolist()
    found: dict[tuple[int, int], list[float]] = {}
    cache = lm.new_cache()
    end = clock() + budget_s
    seen: set[int] = set()
    try:
        for rows, context in sizes * MOST_ROUNDS:
            if clock() > end:
                break
            # What the cached rows hold does not matter for the time, so nothing computes them.
            cache.reserve(context)
            cache.length = context
            segment = Segment.chain(cache, tokens[:rows])
            if rows not in seen:  # kernels and memory of this size are made at the first pass
                seen.add(rows)
                _run(lm, segment)
                cache.length = context
            started = clock()
            _run(lm, segment)
            found.setdefault((rows, context), []).append(clock() - started)
    except PoolFullError:
        pass  # the sizes measured until then stand
    finally:
        cache.free()
    return [PassTime(*size, round(min(times) * 1e6)) for size, times in found.items()]


def _run(lm: CausalLM, segment: Segment) -> None:
    lm.logits(lm.forward([segment]).states)
    if lm.device.type == "cuda":
        torch.cuda.synchronize(lm.device)
