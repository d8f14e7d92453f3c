"""What a round earns, see `orchestrator.controller`: G of depths, trees and K=0 in one state."""

from __future__ import annotations

from itertools import accumulate

from orchestrator.company import Company, wait
from orchestrator.state import State


class Value:
    """G of one state; what all K share is computed once."""

    def __init__(self, state: State, company: Company) -> None:
        self._times = state.times
        self._verify, self._fill = state.verify, state.times.fill
        self._rows, self._tokens, self._full = company.rows, company.tokens, company.full
        # Where one of them is there now and then only, its steps are weighed by `tokens`.
        self._crowd = max(company.rows, 1.0)
        self._apart = company.rows < 1.0
        self._drag, self._step_us, self._share = company.drag_us, company.step_us, company.share
        self._before = state.verify(self._crowd) + self._drag if company.mates else 0.0
        self.emitted = list(accumulate(state.curve, initial=1.0))  # E(0), E(1), ...
        if self._before and state.times.drag:
            self.emitted = [e - self.taken(depth) for depth, e in enumerate(self.emitted)]

    def taken(self, depth: int) -> float:
        """Tokens that the others lose while a draft of so many levels is made."""
        if not (depth and self._before):
            return 0.0
        return self._tokens * self._share / self._before * self._times.drag_us(depth)

    def away(self, depth: int) -> float:
        """What a round takes beside its step, microseconds: C(K) - v."""
        think = self._times.think_us(depth)
        return think + wait(think, self._step_us, self._share)

    def step(self, nodes: int) -> float:
        """v with so many drafted nodes, microseconds."""
        return self._verify(self._rows + 1.0 + nodes * self._fill) + self._drag

    def drafting(self, away: float, nodes: int, tokens: float) -> float:
        """G(K) in tokens a microsecond; `tokens` is E(K) less what its draft takes."""
        rows = 1.0 + nodes * self._fill
        step = self._verify(self._rows + rows) + self._drag
        if self._full:
            return (tokens + self._tokens) / step
        if self._before:
            tokens -= self._lost(rows, step)
        return tokens / (away + step)

    def tokens_for(self, gain: float, away: float, drafted: float) -> float:
        """The tokens with which a round of so many nodes that are drafted comes to G = gain."""
        rows = 1.0 + drafted
        step = self._verify(self._rows + rows) + self._drag
        if self._full:
            return gain * step - self._tokens
        return gain * (away + step) + (self._lost(rows, step) if self._before else 0.0)

    def free_run(self) -> float:
        """G(0), above 0."""
        step = self.step(0)
        if self._full:
            return (1.0 + self._tokens) / step
        lost = self._lost(1.0, step) if self._before else 0.0
        return max(1.0 - lost, 1e-3) / (self._times.gap_us + step)

    def _lost(self, rows: float, step: float) -> float:
        """Tokens that the others lose where a step of theirs has these rows more."""
        if self._apart:
            step = self._verify(self._crowd + rows) + self._drag
        return self._tokens * (step / self._before - 1.0) if step > self._before else 0.0
