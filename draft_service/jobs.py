"""What the engine gives its thread to do: the only calls of drafters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from draft_service.session import Request, Session
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession

Due = tuple[DraftSession, Request]
"""What is drafted for, and the request that asks for it."""


def warm_up(drafter: Drafter) -> list[Proposal]:
    """Runs a drafter once."""
    session = drafter.open([0, 0], SamplingParams(temperature=0.0))
    drafter.prefill(session)
    proposals = drafter.propose([(session, Budget(2, 2))])
    drafter.close(session)
    return proposals


@dataclass(frozen=True)
class Turn:
    """What a session gets done at once: requests to apply, and the one to draft for, if any."""

    session: Session
    requests: Sequence[Request]
    newest: Request | None


def serve(drafter: Drafter, turns: Sequence[Turn]) -> list[Proposal | Exception | None]:
    """Applies the requests of a drafter's sessions, then drafts one batch for those that are due.

    One job for both, as each costs a change of threads. An exception is its session's alone; where
    a batch raises, each of its sessions is drafted for alone, so that only the culprit is lost.
    """
    found: list[Proposal | Exception | None] = [None] * len(turns)
    due: dict[int, Due] = {}
    for index, turn in enumerate(turns):
        try:
            observe(turn.session, turn.requests)
        except Exception as error:  # noqa: BLE001 - it is its session's
            found[index] = error
        else:
            if turn.newest is not None and turn.session.drafting is not None:
                due[index] = turn.session.drafting, turn.newest
    for index, outcome in zip(due, _drafted(drafter, [*due.values()]), strict=True):
        found[index] = outcome
    return found


def _drafted(drafter: Drafter, due: Sequence[Due]) -> list[Proposal | Exception]:
    if not due:
        return []
    now = time.perf_counter()
    try:
        proposals = propose(drafter, [(session, asked.budget_at(now)) for session, asked in due])
    except Exception as error:  # noqa: BLE001 - it is one session's
        if len(due) == 1:
            return [error]
        return [outcome for each in due for outcome in _drafted(drafter, [each])]
    draft_us = _microseconds(time.perf_counter() - now)
    return [
        replace(proposal, draft_us=draft_us, queue_us=_microseconds(now - asked.arrived))
        for proposal, (_, asked) in zip(proposals, due, strict=True)
    ]


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
    with _counted(session):
        return session.drafter.prefill(session.drafting, rows)


def observe(session: Session, requests: Sequence[Request]) -> None:
    """Applies what requests committed."""
    if session.drafting is not None:
        with _counted(session):
            for request in requests:
                session.drafter.observe(
                    session.drafting, request.new_tokens, request.features, request.samples
                )


def close(session: Session) -> None:
    """Frees what a session holds."""
    if session.drafting is not None:
        session.drafter.close(session.drafting)
        session.drafting = None


@contextmanager
def _counted(session: Session) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        session.worked_s += time.perf_counter() - started


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
