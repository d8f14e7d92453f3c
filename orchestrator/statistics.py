"""Acceptance counts in Redis, off the critical path.

Schema: hash `outrider:acceptance:{target}:{method}:{class}`, fields `drafted:{position}` and
`accepted:{position}` (integers, position from 0), `rounds`; expiry seven days behind the last
write.

Counts are added up locally and written once a second as one batch. While Redis is away they wait
here, in a bounded number of hashes. A batch whose reply was lost is sent again under the same name,
and the server keeps `outrider:batch:{name}` for an hour, so that each count is taken once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from orchestrator.report import Report

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
TIMEOUT_S = 1.0
EXPIRE_S = 7 * 24 * 3600
BATCH_EXPIRE_S = 3600
MAX_HASHES = 1024

# KEYS: the batch's name, then the hashes. ARGV: both expiries, then hash's index, field, count of
# each count.
WRITE_ONCE = """
if not redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[1]) then return 0 end
for i = 3, #ARGV, 3 do redis.call('HINCRBY', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2]) end
for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[2]) end
return 1
"""


def acceptance_key(target: str, method: str, class_: str) -> str:
    """The hash under which a method's counts are kept."""
    return f"outrider:acceptance:{target}:{method}:{class_}"


@dataclass
class _Batch:
    """Counts by hash that are written together."""

    hashes: dict[str, Counter[str]]
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def keys(self) -> list[str]:
        return [f"outrider:batch:{self.name}", *self.hashes]

    @property
    def arguments(self) -> list[str | int]:
        counted = [
            (index, name, count)
            for index, counts in enumerate(self.hashes.values(), start=2)
            for name, count in counts.items()
        ]
        return [BATCH_EXPIRE_S, EXPIRE_S, *(value for entry in counted for value in entry)]


class Statistics:
    """Adds requests' counts up and writes them once a second; nobody waits for it."""

    def __init__(self, url: str, target: str) -> None:
        self._target = target
        self._redis = Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),  # the next flush is the retry
        )
        self._waiting: dict[str, Counter[str]] = {}
        self._batch: _Batch | None = None
        self._down = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to flush."""
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

    async def flush(self) -> bool:
        """Writes the batch under way, or else what waits; whether Redis took it."""
        if self._batch is None:
            if not self._waiting:
                return True
            self._batch, self._waiting = _Batch(self._waiting), {}
        keys = self._batch.keys
        try:
            await self._redis.eval(WRITE_ONCE, len(keys), *keys, *self._batch.arguments)
        except (RedisError, OSError) as error:
            if not self._down:
                logger.warning("statistics: Redis does not answer, counts wait: %s", error)
            self._down = True
            return False
        self._batch = None
        if self._down:
            logger.warning("statistics: Redis is back")
        self._down = False
        return True

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), FLUSH_S)
            await self.flush()
        while (self._batch or self._waiting) and await self.flush():
            pass
