"""Runs the loop to its end, and controllers that switch between drafting and free run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from orchestrator.controller import FixedDepth
from orchestrator.loop import Limits, Loop
from orchestrator.peers import Committed, Controller, Drafter, Verifier
from orchestrator.report import Report
from outrider.core.acceptance import Kind
from outrider.core.round import Budget


def fixed(depth: int, nodes: int = 0, m: int = 4) -> FixedDepth:
    """K = depth; a chain where nodes is 0. The time for a proposal never runs out."""
    return FixedDepth(depth, nodes, m, time_left_s=1e6)


@dataclass(frozen=True)
class Handover:
    """`inner`, but K=0 wherever `free(remaining)` holds."""

    inner: Controller
    free: Callable[[int], bool]

    def calls(self, remaining: int) -> bool:
        return True

    def choose(self, remaining: int) -> Budget | None:
        return None if self.free(remaining) else self.inner.choose(remaining)


@dataclass(frozen=True)
class Text:
    """What a request came to; the kind stands beside each token."""

    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    commits: tuple[Committed, ...]
    report: Report


async def generate(
    prompt: Sequence[int],
    verifier: Verifier,
    drafter: Drafter | None,
    controller: Controller,
    max_tokens: int,
    *,
    stop_ids: tuple[int, ...] = (),
    uniform: Callable[[], float] | None = None,
    least: int | None = None,
) -> Text:
    """Runs a loop until its end, or until at least `least` tokens are committed."""
    report = Report()
    loop = Loop(
        list(prompt),
        Limits(max_tokens, stop_ids),
        verifier,
        drafter,
        controller,
        uniform or np.random.default_rng(3).random,
        report,
    )
    commits: list[Committed] = []
    tokens: list[int] = []
    async with aclosing(loop.run()) as chunks:
        async for committed in chunks:
            commits.append(committed)
            tokens += committed.tokens
            if least is not None and len(tokens) >= least:
                break
    kinds = tuple(kind for committed in commits for kind in committed.kinds)
    return Text(tuple(tokens), kinds, tuple(commits), report)
