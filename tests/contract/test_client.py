"""The SDK against a real server with a fake orchestrator."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from fake_orchestrator import FakeOrchestrator, abort, replies, stumble

import outrider
from outrider import AsyncClient, Client, Retry, exceptions
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings

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


async def test_replies_fold_into_one_result_with_all_totals(client: AsyncClient) -> None:
    result = await client.generate("hi")
    assert result.text == "abcdef"
    assert result.token_ids == [1, 2, 3, 4, 5, 6]
    assert result.kinds == ["plain", "accepted", "accepted", "bonus", "accepted", "recovered"]
    assert result.finish_reason == "length"
    assert (
        result.usage.prompt_tokens,
        result.usage.completion_tokens,
        result.usage.total_tokens,
    ) == (
        3,
        6,
        9,
    )
    report = result.speculation
    assert (report.method, report.rounds, report.drafted, report.accepted) == ("ngram", 2, 8, 3)
    assert report.acceptance_rate == pytest.approx(3 / 8)
    assert report.acceptance_length == pytest.approx(5 / 2)
    assert (report.drafted_per_position, report.accepted_per_position) == ([2, 2], [2, 1])
    assert (report.passes, report.late_proposals, report.tree_exact) == (3, 1, True)
    assert result.tokens_per_pass == pytest.approx(5 / 3)
    assert (result.timings.total_us, result.timings.round_bytes) == (900, 55)
    assert (result.model, result.exact, result.request_id) == ("fake", True, "r-1")
    assert result.numerics.fingerprint == "f"


async def test_both_clients_return_the_same(client: AsyncClient, blocking: Client) -> None:
    assert await asyncio.to_thread(blocking.generate, "hi") == await client.generate("hi")
    messages = [{"role": "user", "content": "hi"}]
    assert await asyncio.to_thread(blocking.chat, messages) == await client.chat(messages)
    assert await asyncio.to_thread(blocking.info) == await client.info()


async def test_only_the_last_chunk_has_the_result(client: AsyncClient) -> None:
    chunks = [chunk async for chunk in client.stream("hi")]
    assert [chunk.text for chunk in chunks] == ["a", "bcd", "ef"]
    assert [chunk.result is not None for chunk in chunks] == [False, False, True]


async def test_info_has_the_depth_that_each_method_recommends(client: AsyncClient) -> None:
    info = await client.info()
    assert info.recommended_depths == {"draft_model": 4, "ngram": 6}
    assert (info.model.name, info.model.numerics.dtype, info.max_depth) == ("fake", "float32", 16)


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
)
async def test_every_status_has_its_exception(
    code: grpc.StatusCode, fake: FakeOrchestrator, client: AsyncClient, blocking: Client
) -> None:
    for call in (client.generate("hi"), asyncio.to_thread(blocking.generate, "hi")):
        fake.faults = [abort(code, "what went wrong")] * QUICK.attempts
        with pytest.raises(exceptions.EXCEPTIONS[code], match="what went wrong") as caught:
            await call
        assert caught.value.code is code


def test_the_table_from_status_to_exception_is_complete() -> None:
    assert set(exceptions.EXCEPTIONS) == set(grpc.StatusCode) - {grpc.StatusCode.OK}


async def test_a_full_server_says_when_to_come_back(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.faults = [abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", (("retry-after-ms", "1500"),))]
    with pytest.raises(outrider.ResourceExhausted) as caught:
        await client.generate("hi")
    assert caught.value.retry_after_s == pytest.approx(1.5)


async def test_a_fault_of_the_server_shows_nothing_of_its_inside(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.faults = [stumble(KeyError("secret"))]
    with pytest.raises(outrider.ServerError, match=r"^internal error$"):
        await client.generate("hi")


async def test_a_stream_without_its_summary_is_a_fault(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.replies = replies()[:2]
    with pytest.raises(outrider.ServerError, match="without its summary"):
        await client.generate("hi")


async def test_an_unset_finish_reason_is_a_fault(
    fake: FakeOrchestrator, client: AsyncClient
) -> None:
    fake.replies[-1].summary.ClearField("finish_reason")
    with pytest.raises(outrider.ServerError, match="finish_reason"):
        await client.generate("hi")


async def test_one_blocking_client_serves_many_threads(
    fake: FakeOrchestrator, blocking: Client
) -> None:
    texts: list[str] = []

    def work() -> None:
        for _ in range(5):
            texts.append(blocking.generate("hi").text)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert texts == ["abcdef"] * 80
    assert len(fake.requests) == 80


def test_importing_the_package_loads_neither_torch_nor_grpc() -> None:
    code = (
        "import sys, outrider, outrider.core.round; "
        "print(sorted({'torch', 'grpc'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_client_does_not_load_torch() -> None:
    code = "import sys; from outrider import Client, AsyncClient; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_exported_name_can_be_had() -> None:
    assert set(outrider.__all__) <= set(dir(outrider))
    for name in outrider.__all__:
        assert getattr(outrider, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        outrider.nonsense  # noqa: B018
