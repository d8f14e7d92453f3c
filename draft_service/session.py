"""A session between the stream that feeds it and the engine that drafts for it.

No grpc, no torch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession

_MOST_REPLIES = 2


class DrafterFailed(RuntimeError):
    """A drafter raised while it worked for this session; the log has the traceback."""


class EngineStopped(RuntimeError):
    """The engine was stopped while the session lived."""


@dataclass(frozen=True)
class Request:
    """What was committed since the last request, and what the next proposal may cost."""

    round: int
    base_len: int
    new_tokens: Sequence[int]
    budget: Budget
    features: Sequence[Features] = ()
    samples: Sequence[int] = ()
    arrived: float = field(default_factory=time.perf_counter)

    def budget_at(self, now: float) -> Budget:
        """The budget less the time that the request has waited."""
        return replace(self.budget, time_left_s=self.budget.time_left_s - (now - self.arrived))


@dataclass(frozen=True)
class Prefilled:
    """The prompt is worked off, which took so many microseconds."""

    prefill_us: int = 0


@dataclass(frozen=True)
class Drafted:
    """A proposal for the request that it names."""

    request: Request
    proposal: Proposal


Reply = Prefilled | Drafted


class Session:
    """One stream's session. All methods run on the event loop.

    Newer requests win: the engine applies the tokens of all that wait and drafts for the newest
        alone.
    Requests wait in a bounded queue; when it is full, `submit` waits, and with it the stream.
    worked_s: time spent on what was committed since the last reply.
    """

    def __init__(
        self,
        drafter: Drafter,
        prompt: Sequence[int],
        sampling: SamplingParams,
        bound: int,
        wake: Callable[[], None],
    ) -> None:
        self.drafter = drafter
        self.prompt = prompt
        self.sampling = sampling
        self.drafting: DraftSession | None = None
        self.newest: Request | None = None
        self.prefilled = False
        self.closed = False
        self.greeted = False
        self.worked_s = 0.0
        self._wake = wake
        self._ending = False
        self._requests: asyncio.Queue[Request] = asyncio.Queue(bound)
        # Bounded by `behind`: the engine drafts no more while replies wait.
        self._replies: asyncio.Queue[Reply | Exception | None] = asyncio.Queue()

    async def submit(self, request: Request) -> None:
        """Hands a request over; waits while the queue is full."""
        await self._requests.put(request)
        self._wake()

    def finish(self) -> None:
        """No further request will come: `replies` ends behind the last answer that is due."""
        self._ending = True
        self._end_if_idle()

    async def replies(self) -> AsyncIterator[Reply]:
        """What the engine answers, until `finish`.

        Raises:
            DrafterFailed, EngineStopped: no further answer will come.
        """
        while (reply := await self._replies.get()) is not None:
            self._wake()
            if isinstance(reply, Exception):
                raise reply
            yield reply

    @property
    def behind(self) -> bool:
        """Whether the stream has not taken the last replies yet, so that further ones would pile
        up.
        """
        return self._replies.qsize() >= _MOST_REPLIES

    def take(self) -> list[Request]:
        """Takes all waiting requests; the last one is the newest."""
        taken = [self._requests.get_nowait() for _ in range(self._requests.qsize())]
        if taken:
            self.newest = taken[-1]
        return taken

    def greet(self) -> None:
        """Answers the Open, once."""
        if not self.greeted:
            self.greeted = True
            self._replies.put_nowait(Prefilled(self.take_worked_us()))
        self._end_if_idle()

    def take_worked_us(self) -> int:
        """`worked_s` in microseconds, each once."""
        worked_us, self.worked_s = round(self.worked_s * 1e6), 0.0
        return worked_us

    def answer(self, proposal: Proposal) -> None:
        """Answers the newest request."""
        if self.newest is not None:
            proposal = replace(proposal, prefill_us=self.take_worked_us())
            self._replies.put_nowait(Drafted(self.newest, proposal))
            self.newest = None
        self._end_if_idle()

    def fail(self, error: Exception) -> None:
        """Ends the session with an error."""
        self.closed = True
        self._replies.put_nowait(error)

    def _end_if_idle(self) -> None:
        if self._ending and self.greeted and self.newest is None and self._requests.empty():
            self._replies.put_nowait(None)
