"""Collects the calls of many coroutines and answers them all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Together(Generic[Item, Answer]):
    """Whoever calls in the same turn of the event loop shares one call of `run`."""

    def __init__(self, run: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._run = run
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []

    async def __call__(self, item: Item) -> Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._answer)
        return await future

    def _answer(self) -> None:
        asked, self._waiting = self._waiting, []
        waiting = [(item, future) for item, future in asked if not future.cancelled()]
        if not waiting:
            return
        try:
            answers = self._run([item for item, _ in waiting])
        except Exception as error:  # noqa: BLE001 - it belongs to the callers
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            future.set_result(answer)
