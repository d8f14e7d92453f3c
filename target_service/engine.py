"""Packs what waits into one forward after the other: the loop schedules, a thread computes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from outrider.core.round import Evidence, Features, Ids, Load, SamplingParams
from outrider.core.sampling import prepare
from outrider.core.tree import TokenTree
from outrider.models.causal_lm import CausalLM
from outrider.serving.errors import Unavailable
from target_service.limits import EngineLimits, check_open
from target_service.memory import IDLE_S, Memory
from target_service.pace import Pace
from target_service.prefix import PrefixCache
from target_service.schedule import Item, Pass, Run, RunTokens, Schedule, prompt_rows
from target_service.session import FeatureRequest, FreeRun, Session
from target_service.step import Outcome, StepResult, Work, run

logger = logging.getLogger(__name__)

Found = tuple[Outcome, StepResult] | BaseException


class Engine:
    """Runs sessions' passes and free runs. Everything but the forward happens on the event loop."""

    def __init__(
        self, model: CausalLM, limits: EngineLimits, thread: ThreadPoolExecutor | None = None
    ) -> None:
        self.model = model
        self.limits = limits
        self.sessions_total = 0
        kept = int(model.pool.size * limits.prefix_share)
        self.memory = Memory(model.pool, PrefixCache(model.pool, kept))
        self._pace = Pace(limits.prefill_rows)
        self._schedule = Schedule(self.memory, self._pace, limits.batch)
        self._wake = asyncio.Event()
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._task: asyncio.Task[None] | None = None
        self._computing: set[int] = set()

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
        return len(self.memory)

    def load(self) -> Load:
        """Sessions open, passes and runs in progress, and what the last forward was made of."""
        return self._schedule.load(len(self.memory))

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
            InvalidArgument: the text would not fit into the KV memory, even alone.
        """
        limit = len(prompt) + max_tokens
        check_open(self.limits, self.memory, limit)
        cache, serial = self.model.new_cache(), self.sessions_total
        session = Session(request_id, list(prompt), sampling, cache, limit, features, serial=serial)
        self.memory.open(session)
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
        """Evidence for a tree behind the session's last committed token; prefills what is missing.

        `on_features` hears of the prompt's feature rows, those that were known and then chunk by
        chunk.
        """
        future: asyncio.Future[Evidence] = asyncio.get_running_loop().create_future()
        session.busy = True
        session.bits_exact &= tree_exact
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
        """Starts a free run; `deliver` hears of each step's tokens, `fail` of what ends it."""
        session.free_run = state
        self._add(Run(session, state, deliver, fail))

    def acknowledge(self, session: Session, base_len: int) -> None:
        """The orchestrator has everything up to base_len; without a run nothing happens."""
        if session.free_run is not None:
            session.free_run.acknowledged = max(session.free_run.acknowledged, base_len)
            self._wake.set()

    def halt(self, session: Session) -> None:
        """Ends a free run after the step in progress; nothing happens where none is."""
        run_ = self._schedule.find(session)
        if isinstance(run_, Run) and session.free_run is not None:
            session.free_run.halted = True
            if not session.busy:
                self._forget(run_)
                run_.tell((), (0, 0), True, self.load(), None)

    def close(self, session: Session) -> None:
        """Forgets a session; its rows are given back, behind the step in progress if in it."""
        self._schedule.remove(session)
        self.memory.close(session)
        if id(session) not in self._computing:
            session.cache.free()
        self._wake.set()  # others may have waited for its memory

    def _add(self, item: Item) -> None:
        self._schedule.add(item)
        self._wake.set()

    async def _steps(self) -> None:
        while True:
            taken = self._schedule.take()
            if not taken:
                self._wake.clear()
                with suppress(TimeoutError):  # idle sessions may be asked for their memory later
                    async with asyncio.timeout(IDLE_S if len(self._schedule) else None):
                        await self._wake.wait()
                continue
            for _, work in taken:
                work.session.busy = True
                work.session.steps += 1
            works = [work for _, work in taken]
            self._computing = {id(work.session) for work in works}
            started = time.perf_counter()
            all_found = await self._run(works)
            self._pace.learn(time.perf_counter() - started, *prompt_rows(works))
            self._computing.clear()
            for (item, work), found in zip(taken, all_found, strict=True):
                if self._schedule.find(item.session) is not item:  # closed meanwhile
                    item.session.cache.free()
                    continue
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
        if isinstance(item, Run):
            item.session.busy = False
            if work.tree is not None:
                self._extend_run(item, outcome, step)
            return
        if outcome.prompt_features is not None:
            item.session.prompt_features.append(outcome.prompt_features)
            item.on_features(outcome.prompt_features)
        if work.tree is not None:
            if item.session.round == 0:
                self.memory.keep(item.session)
                item.session.prompt_features.clear()
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
        times = max(0, int((step.started - item.ready_since) * 1e6)), step.forward_us
        session.tokens.append(token)
        item.ready_since = time.perf_counter()
        ended = state.halted or token in state.stop_ids or session.base_len >= state.end
        if ended:
            self._forget(item)
        item.tell((token,), times, ended, self.load(), outcome.features)

    def _forget(self, item: Item) -> None:
        self._schedule.remove(item.session)
        if isinstance(item, Run):
            item.session.free_run = None

    def _fail(self, item: Item, error: BaseException) -> None:
        self._forget(item)
        if isinstance(item, Run):
            item.fail(error)
        elif not item.future.done():
            item.future.set_exception(error)
