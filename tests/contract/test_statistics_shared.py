"""What orchestrators share: it adds up over processes, a new one starts from it, and a server that
is full, wrong or mad delays nobody."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis_server import Server
from stack import deployment
from stack_models import greedy

from orchestrator import schema
from orchestrator.knowledge import Knowledge
from orchestrator.report import Report
from orchestrator.schema import acceptance_key, latency_key, survival_key
from orchestrator.statistics import Statistics
from outrider.core.tree import TokenTree

WRITERS, ROUNDS = 4, 400
WRITER = """
import asyncio, sys
from orchestrator import schema
from orchestrator.report import Report
from orchestrator.statistics import Statistics
from outrider.core.tree import TokenTree

async def main():
    schema.HALF_LIFE_S = 1e15  # nothing decays within the test
    statistics = Statistics(sys.argv[1], "tiny")
    for number in range(int(sys.argv[2])):
        report = Report()
        report.add_round("m", TokenTree.chain(1, [2, 3, 4]), number % 4, 1 + number % 4)
        statistics.book(report, "greedy")
        statistics.try_("m", "greedy", 3, number % 4)
        if number % 20 == 0:
            assert await statistics.flush()
    assert await statistics.flush()
    await statistics.stop()

asyncio.run(main())
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def exchanging(
    url: str, knowledge: Knowledge | None = None, methods: tuple[str, ...] = ("m",)
) -> AsyncIterator[Statistics]:
    statistics = Statistics(url, "tiny", knowledge, lambda: methods)
    yield statistics
    await statistics.stop()


def report() -> Report:
    made = Report()
    made.add_round("m", TokenTree.chain(1, [2]), 1, 2)
    return made


def test_counts_of_four_processes_add_up_exactly(redis: Server) -> None:
    command = [sys.executable, "-c", WRITER, redis.url, str(ROUNDS)]
    writers = [subprocess.Popen(command) for _ in range(WRITERS)]
    assert [writer.wait(120) for writer in writers] == [0] * WRITERS
    total, each = WRITERS * ROUNDS, WRITERS * ROUNDS // 4
    assert redis.counts() == {
        acceptance_key("tiny", "m", "greedy"): {
            "rounds": total,
            **{f"drafted:{position}": total for position in range(3)},
            **{f"accepted:{position}": (3 - position) * each for position in range(3)},
        }
    }
    with redis.connected() as connection:
        found = connection.hgetall(survival_key("tiny", "m", "greedy"))
    assert float(found["tried:0"]) == pytest.approx(total)
    assert float(found["kept:0"]) == pytest.approx(3 * each)
    assert float(found["tried:2"]) == pytest.approx(2 * each)
    assert float(found["kept:2"]) == pytest.approx(each)


async def test_trials_lose_half_their_weight_in_a_half_life(
    redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "HALF_LIFE_S", 0.5)
    async with exchanging(redis.url) as statistics:
        for _ in range(100):
            statistics.try_("m", "greedy", 1, 1)
        await statistics.flush()
        await asyncio.sleep(0.5)
        statistics.try_("m", "greedy", 1, 0)
        await statistics.flush()
    with redis.connected() as connection:
        found = connection.hgetall(survival_key("tiny", "m", "greedy"))
    assert 5.0 < float(found["kept:0"]) <= 50.0
    assert float(found["tried:0"]) == pytest.approx(float(found["kept:0"]) + 1.0)


async def test_an_orchestrator_that_starts_takes_over_what_others_measured(redis: Server) -> None:
    first = Knowledge()
    first.drafter("m").line.add(4, 8_000.0)
    async with exchanging(redis.url, first) as statistics:
        for _ in range(200):
            statistics.try_("m", "greedy", 2, 1)
        assert await statistics.flush()
    second = Knowledge()
    async with exchanging(redis.url, second) as statistics:
        assert await statistics.flush()
        counts = second.counts("m", "greedy")
        assert counts.rates(2) == pytest.approx([0.98, 0.07], abs=0.05)
        assert max(counts.tried) == pytest.approx(64.0)
        assert second.drafter("m").line.fit()[1] == pytest.approx(2_000.0, rel=0.01)
        counts.add(2, 0)
        assert await statistics.flush()  # taken over once: the local estimate is authoritative
        assert second.counts("m", "greedy").tried[0] == pytest.approx(65.0)


async def test_keys_expire_and_services_tell_that_they_live(redis: Server) -> None:
    statistics = Statistics(redis.url, "tiny", services=lambda: [("target", "127.0.0.1:1")])
    statistics.book(report(), "greedy")
    statistics.try_("m", "greedy", 1, 1)
    await statistics.flush()
    await statistics.stop()
    with redis.connected() as connection:
        assert abs(float(connection.get("outrider:service:target:127.0.0.1:1")) - time.time()) < 60
        assert 0 < connection.ttl("outrider:service:target:127.0.0.1:1") <= 10
        assert 0 < connection.ttl(survival_key("tiny", "m", "greedy")) <= schema.EXPIRE_S


async def test_one_round_trip_a_second_carries_everything(redis: Server) -> None:
    with redis.connected() as connection:
        async with deployment(redis_url=redis.url) as stack:
            await stack.generate("Once", 24, ignore_eos=True)
            await asyncio.sleep(1.2)
            before = connection.info("commandstats")["cmdstat_eval"]["calls"]
            await asyncio.gather(
                *(stack.generate(f"{n} Once", 40, ignore_eos=True) for n in range(4))
            )
            await asyncio.sleep(2.0)
            after = connection.info("commandstats")["cmdstat_eval"]["calls"]
    assert 1 <= after - before <= 8


@pytest.mark.parametrize("key", [acceptance_key, survival_key])
async def test_a_key_of_another_type_is_left_alone(redis: Server, key: object) -> None:
    taken = key("tiny", "m", "greedy")  # type: ignore[operator]
    with redis.connected() as connection:
        connection.set(taken, "not ours")
        connection.hset(latency_key("tiny", "m"), mapping={"draft_step_us": "much"})
    async with exchanging(redis.url) as statistics:
        statistics.book(report(), "greedy")
        statistics.book(report(), "other")
        statistics.try_("m", "greedy", 1, 1)
        assert await statistics.flush()
    with redis.connected() as connection:
        assert connection.get(taken) == "not ours"
        assert connection.hget(acceptance_key("tiny", "m", "other"), "rounds") == "1"


async def test_a_field_that_is_no_number_spoils_no_other(redis: Server) -> None:
    with redis.connected() as connection:
        connection.hset(acceptance_key("tiny", "m", "greedy"), "rounds", "many")
        connection.hset(survival_key("tiny", "m", "greedy"), "at", "never")
    async with exchanging(redis.url) as statistics:
        statistics.book(report(), "greedy")
        statistics.try_("m", "greedy", 1, 1)
        assert await statistics.flush()
    with redis.connected() as connection:
        assert connection.hget(acceptance_key("tiny", "m", "greedy"), "drafted:0") == "1"
        assert float(connection.hget(survival_key("tiny", "m", "greedy"), "tried:0")) == 1.0


async def test_a_full_server_delays_no_token_and_gets_the_counts_later(redis: Server) -> None:
    async with deployment(redis_url=redis.url) as stack:
        with redis.connected() as connection:
            connection.config_set("maxmemory-policy", "noeviction")
            connection.config_set("maxmemory", "1")
            result = await stack.generate("Once", 40, ignore_eos=True)
            assert tuple(result.token_ids) == greedy("Once", 40)
            await asyncio.sleep(1.3)
            assert redis.counts() == {}
            connection.config_set("maxmemory", "0")
    found = redis.counts()  # stopping writes what waits
    assert [counts["rounds"] for counts in found.values()] == [result.speculation.rounds]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\x13\r\n" * 9,
        b"$-7\r\n",
        b":12\r\n" * 99,
        b"*2\r\n$1\r\na\r\n",
        b"+OK\r\n" * 99,
    ],
)
async def test_a_server_that_answers_rubbish_delays_no_token(rubbish: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(4096):
                writer.write(rubbish)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with exchanging(f"redis://127.0.0.1:{port}/0") as statistics:
        statistics.try_("m", "greedy", 1, 1)
        assert not await statistics.flush()
        assert not await statistics.flush()
        statistics._batch = None
    server.close()


def test_replies_that_are_not_the_scripts_are_refused_or_left_out() -> None:
    batch = schema.Batch(survival={"outrider:survival:tiny:m:greedy": {}})
    with pytest.raises(ValueError, match="reply: int"):
        batch.read("5")
    with pytest.raises(ValueError, match="Expecting value"):
        batch.read(b"OK")
    read = batch.read(json.dumps([["tried:0", "4", "kept:0", "nan", "at", None, "x", "-1"]]))
    assert read == {"outrider:survival:tiny:m:greedy": {"tried:0": 4.0}}
    assert schema.trials({"tried:0": 4.0, "kept:0": 9.0}).tried == []
