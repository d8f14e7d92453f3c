"""Drafts for many sessions at once.

Prefill in slices, proposals in batches, all of it on one thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from draft_service import jobs
from draft_service.jobs import Turn
from draft_service.session import DrafterFailed, EngineStopped, Request, Session
from outrider.core.round import SamplingParams
from outrider.core.sampling import prepare
from outrider.drafting.base import Drafter

logger = logging.getLogger(__name__)


class EngineFull(RuntimeError):
    """The engine has as many sessions as it may have."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the engine and of what a request may ask for.

    prefill_rows: prompt tokens worked off between two batches of proposals: the longest that a long
        prompt
        delays other sessions.
    queue: requests of one session that may wait.
    """

    max_sessions: int = 64
    max_depth: int = 16
    max_nodes: int = 64
    max_m: int = 256
    prefill_rows: int = 128
    queue: int = 32


class DraftEngine:
    """Sessions of several drafters, worked by one task on the event loop and one thread behind it.

    A step applies waiting requests and drafts for all sessions that wait, one batch a drafter, then
    prefills one slice of one session. An exception of a drafter fails only the session that it was
    working for.
    """

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        limits: Limits | None = None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self.drafters = drafters
        self.limits = limits or Limits()
        self.sessions_total = 0
        self._sessions: set[Session] = set()
        self._closing: set[Session] = set()
        self._prefilling: deque[Session] = deque()
        self._work = asyncio.Event()
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="draft")
        self._task: asyncio.Task[None] | None = None

    @property
    def live_sessions(self) -> int:
        """Sessions open now, and those closed whose memory is not free yet."""
        return len(self._sessions) + len(self._closing)

    async def start(self) -> None:
        """Runs each drafter once, so that the first request finds warm kernels, then takes
        sessions.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, prepare)
        for drafter in self.drafters.values():
            await loop.run_in_executor(self._thread, jobs.warm_up, drafter)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Fails the sessions that are left and frees everything."""
        if self._task is not None:
            self._task.cancel()
        for session in list(self._sessions):
            session.fail(EngineStopped("the draft service stops"))
            self.close(session)
        await asyncio.to_thread(self._thread.shutdown)

    def open(self, method: str, prompt: Sequence[int], sampling: SamplingParams) -> Session:
        """A new session; its prompt is worked off in the background.

        Raises:
            KeyError: there is no such drafter.
            EngineFull: max_sessions are open.
        """
        drafter = self.drafters[method]
        if self.live_sessions >= self.limits.max_sessions:
            raise EngineFull(
                f"sessions: {self.live_sessions} open, limit {self.limits.max_sessions}"
            )
        session = Session(drafter, prompt, sampling, self.limits.queue, self._work.set)
        self._sessions.add(session)
        self._prefilling.append(session)
        self.sessions_total += 1
        self._work.set()
        return session

    def close(self, session: Session) -> None:
        """Forgets the session at once and frees what it holds behind the thread's current job."""
        if session in self._sessions:
            self._sessions.remove(session)
            session.closed = True
            self._closing.add(session)
            self._submit(jobs.close, session).add_done_callback(
                lambda job: self._closed(session, job)
            )

    def _closed(self, session: Session, job: asyncio.Future[None]) -> None:
        self._closing.remove(session)
        if error := job.exception():
            logger.error(
                "drafter %s could not close a session", session.drafter.method, exc_info=error
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            logger.critical("the draft engine failed", exc_info=error)
            for session in self._sessions:
                session.fail(EngineStopped("the draft engine failed"))

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while await self._step():
                pass

    async def _step(self) -> bool:
        """Whether there was anything to do."""
        served = await self._serve()
        prefilled = await self._prefill_slice()
        return served or prefilled

    async def _serve(self) -> bool:
        """Applies all waiting requests and drafts for the sessions that wait, drafter by
        drafter."""
        turns: dict[Drafter, list[Turn]] = {}
        for session in self._sessions:
            if session.drafting is None or session.closed:
                continue
            requests = session.take()
            if session.prefilled and _rows(requests) > self.limits.prefill_rows:
                session.prefilled = False
                self._prefilling.append(session)
            due = session.newest if session.prefilled and not session.behind else None
            if requests or due is not None:
                turns.setdefault(session.drafter, []).append(Turn(session, requests, due))
        for drafter, each in turns.items():
            if opened := [turn for turn in each if not turn.session.closed]:
                await self._turn(drafter, opened)
        return bool(turns)

    async def _turn(self, drafter: Drafter, turns: Sequence[Turn]) -> None:
        job = self._submit(jobs.serve, drafter, turns)
        await asyncio.wait([job])
        failed = job.exception()
        outcomes = [failed] * len(turns) if failed is not None else job.result()
        for turn, outcome in zip(turns, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._fail(turn.session, outcome)
            elif outcome is not None:
                turn.session.answer(outcome)

    async def _prefill_slice(self) -> bool:
        if not self._prefilling:
            return False
        session = self._prefilling.popleft()
        if session.closed:
            return True
        job = self._submit(jobs.prefill, session, self.limits.prefill_rows)
        await asyncio.wait([job])
        if error := job.exception():
            self._fail(session, error)
        elif job.result():
            session.prefilled = True
            session.greet()
        else:
            self._prefilling.append(session)
        return True

    def _submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _fail(self, session: Session, error: BaseException) -> None:
        logger.error("drafter %s failed", session.drafter.method, exc_info=error)
        session.fail(DrafterFailed(f"drafter {session.drafter.method} failed"))


def _rows(requests: Sequence[Request]) -> int:
    """Tokens or feature rows that requests bring, whichever are more: what is to be worked off."""
    tokens = sum(len(request.new_tokens) for request in requests)
    return max(tokens, sum(part.rows for request in requests for part in request.features))
