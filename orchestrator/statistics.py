"""Statistics that orchestrators share in Redis, off the critical path; `schema` says what is there.

Everything is added up here and written once a second in one round trip, which also brings what
others wrote. Nobody waits for it: a request only adds to dictionaries. While Redis is away, slow,
full or answers nonsense, counts wait in a bounded number of hashes and the local estimates stand.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from orchestrator.knowledge import Knowledge
from orchestrator.report import Report
from orchestrator.schema import (
    SCRIPT,
    Batch,
    acceptance_key,
    latency_key,
    service_key,
    survival_key,
    trials,
)

__all__ = ["MAX_HASHES", "Statistics", "acceptance_key"]

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
TIMEOUT_S = 1.0
MAX_HASHES = 1024
PRIOR_TRIALS = 64.0  # most trials of a depth that a start takes over from others
# A server that answers rubbish makes the client's parser raise these.
FAILURES = (RedisError, OSError, ValueError, TypeError, IndexError, TimeoutError)


class Statistics:
    """Adds requests' counts up and exchanges them once a second; nobody waits for it.

    Args:
        knowledge: is given the shared prior of what it knows little about.
        methods: tells the methods that are served now.
        services: tells (role, address) of the replicas that answer now.
    """

    def __init__(
        self,
        url: str,
        target: str,
        knowledge: Knowledge | None = None,
        methods: Callable[[], Sequence[str]] = tuple,
        services: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self._target = target
        self._knowledge = knowledge or Knowledge()
        self._methods = methods
        self._services = services
        self._redis = Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),  # the next flush is the retry
        )
        self._waiting: dict[str, Counter[str]] = {}
        self._trials: dict[tuple[str, str], Counter[str]] = {}
        self._primed: set[tuple[str, str]] = set()
        self._batch: Batch | None = None
        self._down = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to exchange, at once."""
        self._task = asyncio.create_task(self._run(), name="statistics")

    async def stop(self) -> None:
        """Writes what waits, unless Redis is away, and closes the connection."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await self._redis.aclose()

    def book(self, report: Report, class_: str) -> None:
        """Takes a request's counts."""
        for method, counts in report.by_method.items():
            key = acceptance_key(self._target, method, class_)
            if key not in self._waiting and len(self._waiting) >= MAX_HASHES:
                logger.warning("statistics: %d hashes wait, counts of %s dropped", MAX_HASHES, key)
                continue
            self._waiting.setdefault(key, Counter()).update(counts)

    def try_(self, method: str, class_: str, asked: int, kept: int) -> None:
        """Takes a round or a shadow draft that asked for `asked` depths and kept `kept`."""
        key = (method, class_)
        if key not in self._trials and len(self._trials) >= MAX_HASHES:
            return
        counts = self._trials.setdefault(key, Counter())
        counts.update(f"tried:{position}" for position in range(min(kept + 1, asked)))
        counts.update(f"kept:{position}" for position in range(kept))

    async def flush(self) -> bool:
        """Sends the batch under way, or else what waits; whether Redis took it."""
        self._batch = self._batch or self._collect()
        if not self._batch:
            self._batch = None
            return True
        batch, keys = self._batch, self._batch.keys
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                reply = await self._redis.eval(SCRIPT, len(keys), *keys, batch.argument)
            found = batch.read(reply)
        except FAILURES as error:
            if not self._down:
                logger.warning("statistics: Redis does not answer, counts wait: %s", error)
            self._down = True
            await self._redis.connection_pool.disconnect()  # what comes late answers nobody
            return False
        self._batch = None
        if self._down:
            logger.warning("statistics: Redis is back")
        self._down = False
        self._prime(found)
        return True

    def _collect(self) -> Batch:
        unknown = {
            (method, class_): Counter[str]()
            for method in self._methods()
            for class_ in ("greedy", "sampled")
            if (method, class_) not in self._primed
        }
        booked, self._trials = {**unknown, **self._trials}, {}
        waiting, self._waiting = self._waiting, {}
        return Batch(
            counts={key: +counts for key, counts in waiting.items()},
            survival={survival_key(self._target, *key): dict(n) for key, n in booked.items()},
            latency={
                latency_key(self._target, method): self._knowledge.drafter(method).as_fields()
                for method in {*self._methods(), *self._knowledge.profiles()}
            },
            services=tuple(service_key(*service) for service in self._services()),
        )

    def _prime(self, found: dict[str, dict[str, float]]) -> None:
        """Gives what others measured to what is known little about here, once each."""
        prefix = survival_key(self._target, "", "")[:-1]
        for key, fields in found.items():
            if not key.startswith(prefix):
                continue
            method, _, class_ = key.removeprefix(prefix).partition(":")
            if (method, class_) in self._primed:
                continue
            self._primed.add((method, class_))
            counts, shared = self._knowledge.counts(method, class_), trials(fields)
            if shared.tried and sum(counts.tried) < PRIOR_TRIALS:
                shared.scale(min(1.0, PRIOR_TRIALS / max(shared.tried)))
                counts.tried, counts.kept = shared.tried, shared.kept
        for method in self._methods():
            fields = found.get(latency_key(self._target, method), {})
            if fields:
                self._knowledge.drafter(method).prime(fields)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self.flush()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), FLUSH_S)
        while (self._batch or self._waiting or self._trials) and await self.flush():
            pass
