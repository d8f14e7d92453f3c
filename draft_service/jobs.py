"""What the engine gives its thread to do: the only calls of drafters."""

from __future__ import annotations

from collections.abc import Sequence

from draft_service.session import Request, Session
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession


def warm_up(drafter: Drafter) -> list[Proposal]:
    """Runs a drafter once."""
    session = drafter.open([0, 0], SamplingParams(temperature=0.0))
    drafter.prefill(session)
    proposals = drafter.propose([(session, Budget(2, 2))])
    drafter.close(session)
    return proposals


def propose(drafter: Drafter, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
    """Proposals of one batch, in its order.

    Raises:
        RuntimeError: the drafter gave more or fewer of them.
    """
    proposals = drafter.propose(batch)
    if len(proposals) != len(batch):
        raise RuntimeError(f"{len(proposals)} proposals for {len(batch)} sessions")
    return proposals


def prefill(session: Session, rows: int) -> bool:
    """Works off a slice of a session's prompt; whether that was the last one."""
    if session.drafting is None:
        session.drafting = session.drafter.open(session.prompt, session.sampling)
    return session.drafter.prefill(session.drafting, rows)


def observe(session: Session, requests: Sequence[Request]) -> None:
    """Applies what requests committed."""
    if session.drafting is not None:
        for request in requests:
            session.drafter.observe(
                session.drafting, request.new_tokens, request.features, request.samples
            )


def close(session: Session) -> None:
    """Frees what a session holds."""
    if session.drafting is not None:
        session.drafter.close(session.drafting)
        session.drafting = None
