"""Acceptance counts in a real Redis server: they add up, and nobody waits for them."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis_server import Server
from stack import Stack, deployment, fixed
from stack_models import greedy

from orchestrator.report import Report
from orchestrator.statistics import MAX_HASHES, Statistics, acceptance_key
from outrider.core.tree import TokenTree

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


def expected(results: list[Any], method: str, class_: str) -> dict[str, dict[str, int]]:
    total: Counter[str] = Counter()
    for result in results:
        report = result.speculation
        total["rounds"] += report.rounds
        total.update({f"drafted:{i}": n for i, n in enumerate(report.drafted_per_position)})
        total.update({f"accepted:{i}": n for i, n in enumerate(report.accepted_per_position)})
    return {acceptance_key("tiny", method, class_): +total}


async def arrived(server: Server, wanted: dict[str, dict[str, int]], within_s: float) -> None:
    """Waits until the counts are there, then sees that they stay so."""
    async with asyncio.timeout(within_s):
        while server.counts() != wanted:  # noqa: ASYNC110 - only the server tells
            await asyncio.sleep(0.1)
    await asyncio.sleep(1.2)
    assert server.counts() == wanted


async def burst(stack: Stack, count: int = 6) -> list[Any]:
    return await asyncio.gather(
        *(
            stack.generate(f"{n} Once", 40, ignore_eos=True, speculative=fixed(4, "noisy"))
            for n in range(count)
        )
    )


async def test_counts_are_the_sum_over_all_requests_by_method_and_class(redis: Server) -> None:
    async with deployment(redis_url=redis.url) as stack:
        greedy_ones = await burst(stack)
        labelled = [
            await stack.generate(
                "a a a",
                40,
                temperature=1.0,
                seed=n,
                request_class="mine",
                speculative=fixed(3, "same"),
            )
            for n in range(3)
        ]
        await stack.generate("Once", 8, speculative=fixed(0))
    # stopping writes what waits
    assert redis.counts() == {
        **expected(greedy_ones, "noisy", "greedy"),
        **expected(labelled, "same", "mine"),
    }
    with redis.connected() as connection:
        assert (
            6 * 24 * 3600
            < connection.ttl(acceptance_key("tiny", "noisy", "greedy"))
            <= 7 * 24 * 3600
        )


async def test_default_class_of_a_request_that_draws_is_sampled(redis: Server) -> None:
    async with deployment(redis_url=redis.url) as stack:
        result = await stack.generate(
            "Once", 24, temperature=1.0, ignore_eos=True, speculative=fixed(2, "same")
        )
    assert redis.counts() == expected([result], "same", "sampled")


async def test_counts_come_once_a_second_without_a_stop(redis: Server) -> None:
    async with deployment(redis_url=redis.url) as stack:
        await arrived(redis, expected(await burst(stack), "noisy", "greedy"), 3.0)


async def test_redis_that_is_down_delays_no_token_and_gets_the_counts_when_it_is_back(
    redis: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with deployment(redis_url=redis.url) as stack:
        before = time.perf_counter()
        await burst(stack)
        normal = time.perf_counter() - before
        await asyncio.sleep(1.2)
        redis.stop()
        before = time.perf_counter()
        results = await burst(stack)
        assert time.perf_counter() - before < 3 * normal + 0.5
        assert [tuple(result.token_ids) for result in results] == [
            greedy(f"{n} Once", 40) for n in range(6)
        ]
        await asyncio.sleep(1.5)
        assert "Redis does not answer" in caplog.text
        redis.start()
        await arrived(redis, expected(results, "noisy", "greedy"), 12.0)
        assert "Redis is back" in caplog.text


async def test_redis_that_is_paused_delays_no_token_and_gets_each_count_once(redis: Server) -> None:
    async with deployment(redis_url=redis.url) as stack:
        first = await burst(stack, 1)
        await arrived(redis, expected(first, "noisy", "greedy"), 3.0)  # and the connection is open
        redis.signal(signal.SIGSTOP)
        before = time.perf_counter()
        results = await burst(stack)
        assert time.perf_counter() - before < 3.0
        await asyncio.sleep(3.0)  # what timed out still reaches the server in the end
        redis.signal(signal.SIGCONT)
        await arrived(redis, expected(first + results, "noisy", "greedy"), 12.0)


async def test_orchestrator_starts_and_stops_without_redis(tmp_path: Path) -> None:
    async with deployment(redis_url=f"unix://{tmp_path}/nobody.sock") as stack:
        result = await stack.generate("Once", 24, ignore_eos=True)
        assert tuple(result.token_ids) == greedy("Once", 24)
        started = time.perf_counter()
    assert time.perf_counter() - started < 4.0


async def test_stop_while_a_flush_is_under_way_loses_nothing(redis: Server) -> None:
    statistics = Statistics(redis.url, "tiny")
    statistics.start()
    statistics.book(report(), "greedy")
    redis.signal(signal.SIGSTOP)
    await asyncio.sleep(1.1)  # the flush waits for Redis now
    asyncio.get_running_loop().call_later(0.3, redis.signal, signal.SIGCONT)
    await statistics.stop()
    assert redis.counts() == {
        acceptance_key("tiny", "noisy", "greedy"): {"rounds": 1, "drafted:0": 1}
    }


async def test_waiting_counts_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    statistics = Statistics(f"unix://{tmp_path}/nobody.sock", "tiny")
    for number in range(MAX_HASHES + 1):
        statistics.book(report(), f"class {number}")
    assert f"{MAX_HASHES} hashes wait" in caplog.text
    assert len(statistics._waiting) == MAX_HASHES


def report() -> Report:
    made = Report()
    made.add_round("noisy", TokenTree.chain(1, [2]), 0, 1)
    return made
