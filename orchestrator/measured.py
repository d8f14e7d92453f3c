"""What the controller has measured, as GetInfo tells it."""

from __future__ import annotations

from orchestrator.knowledge import Knowledge
from outrider.v1 import orchestrator_pb2

ROWS = 8


def measured(knowledge: Knowledge) -> list[orchestrator_pb2.Measured]:
    """An entry for each drafter that was measured on a target that was."""
    targets = [costs for costs in knowledge.targets() if costs.verify.passes]
    if not targets:
        return []
    target = max(targets, key=lambda costs: costs.verify.passes)
    one, more = target.verify(1.0), target.verify(float(ROWS))
    entries = []
    for method, costs in knowledge.profiles().items():
        if not costs.line.known:
            continue
        fixed, step = costs.line.fit()
        entries.append(
            orchestrator_pb2.Measured(
                method=method,
                acceptance=costs.counts.rates(len(costs.counts.tried)),
                draft_fixed_us=round(fixed + costs.queue.value),
                draft_step_us=round(step),
                draft_wire_us=round(costs.wire.value),
                target_wire_us=round(target.wire.value),
                pass_us=round(one),
                row_us=round(max(0.0, more - one) / (ROWS - 1)),
            )
        )
    return entries
