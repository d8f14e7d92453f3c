"""Delays the messages of a stream, for tests and measurements: a network that one does not have.

Each message of a call is handed over `delay_s` after it was sent, in each direction, in its order;
messages overtake nothing and are not slowed by each other (a longer line, not a thinner one). A
round trip so takes twice the delay more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class DelayedCall:
    """A bidirectional call whose messages arrive `delay_s` later, both ways."""

    def __init__(self, call: Any, delay_s: float) -> None:
        self._call = call
        self._delay_s = delay_s
        self._out: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()
        self._in: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()
        self._broken: BaseException | None = None
        loop = asyncio.get_running_loop()
        self._now: Callable[[], float] = loop.time
        self._tasks = [loop.create_task(self._send()), loop.create_task(self._receive())]

    async def write(self, message: Any) -> None:
        """Sends a message; it is under way when this returns."""
        if self._broken is not None:
            raise self._broken
        self._out.put_nowait((self._now() + self._delay_s, message))

    async def read(self) -> Any:
        """The next message, when it has arrived."""
        due, message = await self._in.get()
        await asyncio.sleep(max(0.0, due - self._now()))
        if isinstance(message, BaseException):
            self._in.put_nowait((due, message))  # every further read ends alike
            raise message
        return message

    def cancel(self) -> bool:
        """Ends the call at once."""
        for task in self._tasks:
            task.cancel()
        return bool(self._call.cancel())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def _send(self) -> None:
        while True:
            due, message = await self._out.get()
            await asyncio.sleep(max(0.0, due - self._now()))
            try:
                await self._call.write(message)
            except Exception as error:  # noqa: BLE001 - it is the next writer's
                self._broken = error
                return

    async def _receive(self) -> None:
        while True:
            try:
                message = await self._call.read()
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                message = error
            except Exception as error:  # noqa: BLE001 - it is the reader's
                message = error
            self._in.put_nowait((self._now() + self._delay_s, message))
            if isinstance(message, BaseException) or not hasattr(message, "SerializeToString"):
                return  # broken, or the stream's end


class DelayedStub:
    """A stub whose bidirectional method `stream` is delayed; the others are not."""

    def __init__(self, stub: Any, stream: str, delay_s: float) -> None:
        self._stub = stub
        self._stream = stream
        self._delay_s = delay_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stub, name)
        if name != self._stream:
            return method
        return lambda *args, **kwargs: DelayedCall(method(*args, **kwargs), self._delay_s)


def delayed(make_stub: Callable[[Any], Any], stream: str, delay_ms: float) -> Callable[[Any], Any]:
    """`make_stub`, its method `stream` delayed by `delay_ms` milliseconds each way; 0: as it is."""
    if delay_ms <= 0.0:
        return make_stub
    return lambda channel: DelayedStub(make_stub(channel), stream, delay_ms / 1e3)
