"""Acceptance counts in Redis, off the critical path.

Schema: hash `outrider:acceptance:{target}:{method}:{class}`, fields `drafted:{position}` and `accepted:{position}`
(integers, position from 0), `rounds`; expiry seven days behind the last write. Counts are added up locally and
written in one pipeline a flush; while Redis is away they wait here, in a bounded number of hashes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from orchestrator.report import Report

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
TIMEOUT_S = 1.0
EXPIRE_S = 7 * 24 * 3600
MAX_HASHES = 1024


def acceptance_key(target: str, method: str, class_: str) -> str:
    """The hash under which a method's counts are kept."""
    return f"outrider:acceptance:{target}:{method}:{class_}"


class Statistics:
    """Adds requests' counts up and writes them once a second; nobody waits for it."""

    def __init__(self, url: str, target: str) -> None:
        self._target = target
        self._redis = Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        self._waiting: dict[str, Counter[str]] = {}
        self._down = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to flush."""
        self._task = asyncio.create_task(self._run(), name="statistics")

    async def stop(self) -> None:
        """Flushes once more and closes the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.flush()
        await self._redis.aclose()

    def book(self, report: Report, class_: str) -> None:
        """Takes a request's counts."""
        for method, counts in report.by_method.items():
            key = acceptance_key(self._target, method, class_)
            if key not in self._waiting and len(self._waiting) >= MAX_HASHES:
                logger.warning("statistics: %d hashes wait, counts of %s dropped", MAX_HASHES, key)
                continue
            self._waiting.setdefault(key, Counter()).update(counts)

    async def flush(self) -> None:
        """Writes what waits; keeps it where Redis does not answer."""
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, {}
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                for key, counts in taken.items():
                    for field, count in counts.items():
                        pipe.hincrby(key, field, count)
                    pipe.expire(key, EXPIRE_S)
                await pipe.execute()
        except (RedisError, OSError) as error:
            if not self._down:
                logger.warning("statistics: Redis does not answer, counts wait: %s", error)
            self._down = True
            for key, counts in taken.items():
                self._waiting.setdefault(key, Counter()).update(counts)
            return
        if self._down:
            logger.warning("statistics: Redis is back")
        self._down = False

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()
