"""A fake orchestrator for the commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from tests.contract.fake_orchestrator import FakeOrchestrator


@pytest.fixture
def fake() -> FakeOrchestrator:
    return FakeOrchestrator()


@pytest.fixture
def address(fake: FakeOrchestrator) -> Iterator[str]:
    """The commands need the main thread, so the server has another."""
    loop, ready, addresses = asyncio.new_event_loop(), threading.Event(), []
    ended = asyncio.Event()

    async def serve() -> None:
        async with running(ServiceSettings(grace_s=0), fake) as bound:
            addresses.append(bound)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(10)
    yield addresses[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(10)
    loop.close()
