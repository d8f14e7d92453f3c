"""Retries, cancellation and deadlines of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc
import pytest
from fake_orchestrator import FakeOrchestrator, abort, eventually, hang

import outrider
from outrider import AsyncClient, Client, Retry
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import draft_pb2_grpc


class EmptyDraft(draft_pb2_grpc.DraftServicer):
    """A draft service that nobody should ask for text."""

    name = "outrider.v1.Draft"

    def register(self, server: grpc.aio.Server) -> None:
        draft_pb2_grpc.add_DraftServicer_to_server(self, server)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


QUICK = Retry(attempts=3, first_wait_s=0.01, most_wait_s=0.02)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture
async def fake() -> FakeOrchestrator:
    return FakeOrchestrator()


@pytest.fixture
async def address(fake: FakeOrchestrator) -> AsyncIterator[str]:
    async with running(ServiceSettings(grace_s=0), fake) as bound:
        yield bound


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(address, retry=QUICK, timeout=10) as made:
        yield made


@pytest.fixture
async def blocking(address: str) -> AsyncIterator[Client]:
    with Client(address, retry=QUICK, timeout=10) as made:
        yield made


async def test_unavailable_is_tried_again(
    fake: FakeOrchestrator, client: AsyncClient, blocking: Client
) -> None:
    for call in (client.generate("hi"), asyncio.to_thread(blocking.generate, "hi")):
        fake.faults = [abort(UNAVAILABLE)] * (QUICK.attempts - 1)
        fake.requests.clear()
        assert (await call).text == "abcdef"
        assert len(fake.requests) == QUICK.attempts


async def test_retries_are_bounded(fake: FakeOrchestrator, client: AsyncClient) -> None:
    fake.faults = [abort(UNAVAILABLE)] * 10
    with pytest.raises(outrider.Unavailable):
        await client.generate("hi")
    assert len(fake.requests) == QUICK.attempts


async def test_info_is_tried_again(
    fake: FakeOrchestrator, client: AsyncClient, blocking: Client
) -> None:
    for call in (client.info(), asyncio.to_thread(blocking.info)):
        fake.faults = [abort(UNAVAILABLE)]
        assert (await call).version == "1"
        assert not fake.faults


async def test_nothing_is_tried_again_behind_the_first_token(
    fake: FakeOrchestrator, client: AsyncClient, blocking: Client
) -> None:
    fake.fault_at = 1
    for call in (client.generate("hi"), asyncio.to_thread(blocking.generate, "hi")):
        fake.faults = [abort(UNAVAILABLE)]
        fake.requests.clear()
        with pytest.raises(outrider.Unavailable):
            await call
        assert len(fake.requests) == 1


async def test_nothing_but_unavailable_is_tried_again(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.faults = [abort(grpc.StatusCode.RESOURCE_EXHAUSTED)] * 2
    with pytest.raises(outrider.ResourceExhausted):
        await client.generate("hi")
    assert len(fake.requests) == 1


async def test_closing_a_stream_early_cancels_the_call(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.endless = True
    async with aclosing(client.stream("hi")) as chunks:
        assert (await anext(chunks)).text == "a"
        assert fake.live == 1
    await eventually(lambda: fake.live == 0)
    assert fake.cancelled == 1


async def test_closing_a_blocking_stream_early_cancels_the_call(
    fake: FakeOrchestrator, blocking: Client
) -> None:
    fake.endless = True
    chunks = blocking.stream("hi")
    assert (await asyncio.to_thread(next, chunks)).text == "a"
    chunks.close()
    await eventually(lambda: fake.live == 0)
    assert fake.cancelled == 1


async def test_a_cancelled_task_cancels_the_call(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.endless = True
    task = asyncio.create_task(client.generate("hi"))
    await eventually(lambda: fake.live == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: fake.live == 0)


async def test_the_timeout_ends_a_call_that_hangs(
    fake: FakeOrchestrator, client: AsyncClient, blocking: Client
) -> None:
    for call in (
        client.generate("a", timeout=0.2),
        asyncio.to_thread(blocking.generate, "a", timeout=0.2),
    ):
        fake.faults = [hang()]
        with pytest.raises(outrider.DeadlineExceeded, match=r"timeout: not done within 0\.\d+ s"):
            await call
    await eventually(lambda: fake.live == 0)


async def test_retries_share_the_timeout(fake: FakeOrchestrator, address: str) -> None:
    fake.faults = [abort(UNAVAILABLE)] * 100
    patient = Retry(attempts=100, first_wait_s=0.2, most_wait_s=0.2)
    async with AsyncClient(address, retry=patient) as client:
        started = asyncio.get_running_loop().time()
        with pytest.raises((outrider.Unavailable, outrider.DeadlineExceeded)):
            await client.generate("hi", timeout=0.5)
        assert asyncio.get_running_loop().time() - started < 5, "100 attempts would take over 10 s"


async def test_an_address_where_nothing_listens_is_unavailable() -> None:
    async with AsyncClient("127.0.0.1:1", retry=QUICK) as client:
        with pytest.raises(outrider.Unavailable):
            await client.generate("hi", timeout=5)


async def test_the_port_of_another_service_is_named_as_such() -> None:
    draft = EmptyDraft()
    async with (
        running(ServiceSettings(grace_s=0), draft) as address,
        AsyncClient(address, retry=QUICK, timeout=10) as client,
    ):
        for call in (client.generate("hi"), client.info()):
            with pytest.raises(outrider.NotSupported, match="an orchestrator is needed") as caught:
                await call
            assert "this is outrider.v1.Draft" in str(caught.value)
