"""The engine: packs what waits into one forward after the other; the loop schedules, a thread
computes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from outrider.core.round import Evidence, Features, Ids, Load, SamplingParams
from outrider.core.sampling import prepare
from outrider.core.tree import TokenTree
from outrider.models.causal_lm import CausalLM
from outrider.serving.errors import ResourceExhausted, Unavailable
from target_service.schedule import Item, Pass, Run, RunTokens, Schedule
from target_service.session import FeatureRequest, FreeRun, Session
from target_service.step import Outcome, StepResult, Work, run

logger = logging.getLogger(__name__)

Found = tuple[Outcome, StepResult] | BaseException


@dataclass(frozen=True)
class EngineLimits:
    """Bounds of an engine: sessions at once, rows of prefill a step, rows a prefill chunk."""

    sessions: int = 64
    prefill_rows: int = 128
    prefill_chunk: int = 64


class Engine:
    """Runs sessions' passes and free runs. Everything but the forward happens on the event loop."""

    def __init__(self, model: CausalLM, limits: EngineLimits) -> None:
        self.model = model
        self.limits = limits
        self.sessions_total = 0
        self._sessions: set[int] = set()
        self._schedule = Schedule(limits.prefill_rows, limits.prefill_chunk)
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._task: asyncio.Task[None] | None = None
        self._last_rows = 0

    async def start(self) -> None:
        """Warms the kernels up and begins to take steps."""
        await asyncio.get_running_loop().run_in_executor(self._thread, prepare)
        session = self.open("warm-up", [0, 0], SamplingParams(temperature=0.0), 1, None)
        self._task = asyncio.create_task(self._steps(), name="engine")
        await self.verify(session, TokenTree.root_only(0), {})
        self.close(session)
        self.sessions_total = 0

    async def stop(self) -> None:
        """Ends after the step in progress; what waits ends with Unavailable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for item in self._schedule.items():
            self._fail(item, Unavailable("the target is draining"))
        await asyncio.to_thread(self._thread.shutdown)  # waits for a step that is in progress

    @property
    def live_sessions(self) -> int:
        """Sessions open now."""
        return len(self._sessions)

    def load(self) -> Load:
        """Sessions open, rows of the last forward, passes and runs in progress."""
        return Load(len(self._sessions), self._last_rows, len(self._schedule))

    def open(
        self,
        request_id: str,
        prompt: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        features: FeatureRequest | None,
    ) -> Session:
        """A new session with an empty cache.

        Raises:
            ResourceExhausted: as many sessions as allowed are open.
        """
        if len(self._sessions) >= self.limits.sessions:
            raise ResourceExhausted(
                f"sessions: {len(self._sessions)} open, limit {self.limits.sessions}", 1.0
            )
        cache = self.model.new_cache()
        session = Session(
            request_id, list(prompt), sampling, cache, len(prompt) + max_tokens, features
        )
        self._sessions.add(id(session))
        self.sessions_total += 1
        return session

    async def verify(
        self,
        session: Session,
        tree: TokenTree,
        supports: Mapping[int, Ids],
        tree_exact: bool = True,
        on_features: Callable[[Features], None] = lambda features: None,
    ) -> Evidence:
        """Evidence for a tree whose root is the session's last committed token; prefills what is
        missing.

        `on_features` hears of the prompt's feature rows chunk by chunk, and of those that a free
        run kept.
        """
        future: asyncio.Future[Evidence] = asyncio.get_running_loop().create_future()
        session.busy = True
        for features in session.kept_features:
            on_features(features)
        session.kept_features.clear()
        self._add(Pass(session, tree, supports, tree_exact, future, on_features))
        return await future

    def free_run(
        self,
        session: Session,
        state: FreeRun,
        deliver: Callable[[RunTokens], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Starts a free run; `deliver` hears of each step's tokens, `fail` of an error that ends
        the run."""
        session.free_run = state
        self._add(Run(session, state, deliver, fail))

    def acknowledge(self, session: Session, base_len: int) -> None:
        """The orchestrator has everything up to base_len; nothing happens where no run is in
        progress."""
        if session.free_run is not None:
            session.free_run.acknowledged = max(session.free_run.acknowledged, base_len)
            self._wake.set()

    def halt(self, session: Session) -> None:
        """Ends a free run after the step in progress; nothing happens where none is."""
        run_ = self._schedule.find(session)
        if isinstance(run_, Run) and session.free_run is not None:
            session.free_run.halted = True
            if not session.busy:
                self._end_run(run_, (), 0, 0)

    def close(self, session: Session) -> None:
        """Forgets a session; its cache goes with the last reference to it."""
        self._sessions.discard(id(session))
        self._schedule.remove(session)

    def _add(self, item: Item) -> None:
        self._schedule.add(item)
        self._wake.set()

    async def _steps(self) -> None:
        while True:
            taken = self._schedule.take()
            if not taken:
                self._wake.clear()
                await self._wake.wait()
                continue
            works = [work for _, work in taken]
            for work in works:
                work.session.busy = True
            for (item, work), found in zip(taken, await self._run(works), strict=True):
                if self._schedule.find(item.session) is not item:
                    continue  # closed meanwhile
                if isinstance(found, BaseException):
                    self._fail(item, found)
                else:
                    self._settle(item, work, *found)

    async def _run(self, works: Sequence[Work]) -> list[Found]:
        """One step for all works or, where it raises, one for each.

        So only the sessions at fault fail. A step that raised leaves the caches as they were.
        """
        loop = asyncio.get_running_loop()
        step = loop.run_in_executor(self._thread, run, self.model, works)
        await asyncio.wait([step])  # not `await step`: an error belongs to sessions, not to us
        error = step.exception()
        if error is None:
            return [(outcome, step.result()) for outcome in step.result().outcomes]
        logger.error("a step of %d sessions failed", len(works), exc_info=error)
        if len(works) == 1:
            return [error]
        return [found for work in works for found in await self._run([work])]

    def _settle(self, item: Item, work: Work, outcome: Outcome, step: StepResult) -> None:
        self._last_rows = step.rows
        if isinstance(item, Run):
            self._extend_run(item, outcome, step)
            return
        if outcome.prompt_features is not None:
            item.on_features(outcome.prompt_features)
        if work.tree is not None:
            self._schedule.remove(item.session)
            item.session.tree = work.tree
            item.session.busy = False
            if not item.future.done():  # the caller may have been cancelled
                item.future.set_result(self._evidence(item, outcome, step))

    def _evidence(self, item: Pass, outcome: Outcome, step: StepResult) -> Evidence:
        return Evidence(
            samples=outcome.samples,
            nodes=outcome.nodes,
            queue_us=max(0, int((step.started - item.arrived) * 1e6)),
            forward_us=step.forward_us,
            load=self.load(),
            features=outcome.features,
            walked=outcome.walked,
        )

    def _extend_run(self, item: Run, outcome: Outcome, step: StepResult) -> None:
        session, state, token = item.session, item.state, outcome.samples[0]
        queue_us = max(0, int((step.started - item.ready_since) * 1e6))
        session.tokens.append(token)
        session.busy = False
        item.ready_since = time.perf_counter()
        if outcome.features is not None:
            session.kept_features.append(outcome.features)
        if state.halted or token in state.stop_ids or session.base_len >= state.end:
            self._end_run(item, (token,), queue_us, step.forward_us)
        else:
            self._tell_run(item, (token,), queue_us, step.forward_us, ended=False)

    def _end_run(self, item: Run, tokens: tuple[int, ...], queue_us: int, forward_us: int) -> None:
        self._schedule.remove(item.session)
        item.session.free_run = None
        self._tell_run(item, tokens, queue_us, forward_us, ended=True)

    def _tell_run(
        self, item: Run, tokens: tuple[int, ...], queue_us: int, forward_us: int, *, ended: bool
    ) -> None:
        item.deliver(
            RunTokens(tokens, item.session.base_len, ended, queue_us, forward_us, self.load())
        )

    def _fail(self, item: Item, error: BaseException) -> None:
        self._schedule.remove(item.session)
        if isinstance(item, Run):
            item.session.free_run = None
            item.fail(error)
        elif not item.future.done():
            item.future.set_exception(error)
