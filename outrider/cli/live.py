"""What a running deployment has measured, for `outrider plan --live`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import grpc

from outrider.serving.auth import Security
from outrider.serving.channels import connect_blocking
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc

DEADLINE_S = 10.0


@dataclass(frozen=True)
class Measured:
    """A method's figures: costs over a target pass of one row, times in milliseconds."""

    method: str
    acceptance: float
    draft_cost: float
    row_cost: float
    pass_ms: float
    rtt_ms: float

    def describe(self) -> str:
        """One line for people."""
        return (
            f"measured of {self.method}: acceptance {self.acceptance:.2f}, a draft step "
            f"{self.draft_cost:.2f} and a further row {self.row_cost:.3f} of a pass "
            f"({self.pass_ms:.1f} ms), {self.rtt_ms:.1f} ms beside them a round"
        )


def measured(
    address: str,
    method: str | None,
    token: str | None = None,
    ca: Path | None = None,
    insecure: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Measured:
    """Asks the orchestrator at `address`.

    Args:
        method: None takes the first that was measured.

    Raises:
        ValueError: it measured nothing of the method yet, or plaintext would leave this machine.
        OSError: it does not answer.
    """
    security = Security(ca=ca, token=token, insecure=insecure)
    with connect_blocking(address, security) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)  # type: ignore[no-untyped-call]
        try:
            info = stub.GetInfo(
                orchestrator_pb2.OrchestratorInfoRequest(),
                timeout=DEADLINE_S,
                metadata=security.metadata,
            )
        except grpc.RpcError as error:
            raise OSError(f"live: {address}: {error.code().name}") from error
    found = {entry.method: entry for entry in info.measured}
    if not found or (method is not None and method not in found):
        known = ", ".join(found) or "nothing yet"
        raise ValueError(f"live: {method or 'a method'} was not measured, limit {known}")
    entry = next(iter(found.values())) if method is None else found[method]
    if not entry.pass_us:
        raise ValueError(f"live: {address} has measured no pass yet")
    others = [name for name in found if name != entry.method]
    if method is None and others:
        say(f"also measured: {', '.join(others)} (--method)")
    beside = entry.draft_fixed_us + entry.draft_wire_us + entry.target_wire_us
    return Measured(
        entry.method,
        fmean(entry.acceptance) if entry.acceptance else 0.0,
        entry.draft_step_us / entry.pass_us,
        entry.row_us / entry.pass_us,
        entry.pass_us / 1e3,
        beside / 1e3,
    )
