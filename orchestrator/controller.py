"""What a round may draft: so far the request's own fixed depth."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.round import Budget


@dataclass(frozen=True)
class FixedDepth:
    """K = depth in every round, cut where fewer tokens remain; depth 0 is K=0 throughout.

    nodes: most drafted nodes; m: ids in a q~; time_left_s: how long a proposal may take.
    """

    depth: int
    nodes: int
    m: int
    time_left_s: float
    p_min: float = 0.0

    def choose(self, remaining: int) -> Budget | None:
        """The same budget every time; K is below `remaining`: a round emits one more than it
        accepts."""
        depth = min(self.depth, remaining - 1)
        if depth < 1:
            return None
        nodes = depth if self.nodes <= self.depth else self.nodes
        return Budget(depth, nodes, self.m, self.time_left_s, self.p_min)
