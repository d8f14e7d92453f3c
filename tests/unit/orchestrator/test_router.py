"""Replicas that come, answer, stall, lie and go."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from orchestrator import router
from orchestrator.router import Pool
from outrider.serving.auth import Security
from outrider.serving.errors import FailedPrecondition

NAMES = {"draft:1": ["10.0.0.1:1", "10.0.0.2:1"]}


@dataclass
class Stub:
    """Answers `info`, or ends with a status where that is None."""

    info: str | None = "good"

    async def answer(self) -> str:
        if self.info is None:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()
            )
        return self.info


@dataclass
class World:
    pool: Pool[str]
    stubs: list[Stub]
    names: dict[str, list[str]] = field(default_factory=lambda: dict(NAMES))


def check(address: str, info: str) -> None:
    if info == "bad":
        raise FailedPrecondition(f"tokenizer: {address} is bad")


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    stubs: list[Stub] = []

    def make_stub(channel: Any) -> Stub:
        stubs.append(Stub())
        return stubs[-1]

    made = World(Pool(["draft:1"], make_stub, Stub.answer, check, Security()), stubs)

    async def replicas(address: str) -> list[str]:
        if address not in made.names:
            raise OSError("no such name")
        return made.names[address]

    monkeypatch.setattr(router, "replicas", replicas)
    monkeypatch.setattr(
        router, "connect", lambda address, security: grpc.aio.insecure_channel(address)
    )
    yield made
    await made.pool.close()


async def test_name_stands_for_all_its_addresses_and_sessions_go_to_the_least_loaded(
    world: World,
) -> None:
    await world.pool.refresh()
    chosen = []
    for _ in range(4):
        replica = world.pool.pick()
        assert replica is not None
        replica.take()
        chosen.append(replica.address)
    assert sorted(chosen) == ["10.0.0.1:1", "10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:1"]
    first = world.pool.live()[1]
    first.release()
    assert world.pool.pick() is first


async def test_replica_that_does_not_answer_is_not_picked_until_it_does(world: World) -> None:
    await world.pool.refresh()
    world.stubs[0].info = None
    await world.pool.refresh()
    assert [replica.stub for replica in world.pool.live()] == [world.stubs[1]]
    world.stubs[0].info = "good"
    await world.pool.refresh()
    assert len(world.pool.live()) == 2


async def test_replica_that_does_not_fit_is_refused_and_says_why_until_it_fits(
    world: World,
) -> None:
    await world.pool.refresh()
    address = world.pool.live()[0].address
    world.stubs[0].info = "bad"
    await world.pool.refresh()
    assert world.pool.refusals() == [f"tokenizer: {address} is bad"]
    assert len(world.pool.live()) == 1
    world.stubs[0].info = "good"
    await world.pool.refresh()
    assert not world.pool.refusals()
    assert len(world.pool.live()) == 2


async def test_only_replicas_that_fit_the_request_are_picked(world: World) -> None:
    await world.pool.refresh()
    world.stubs[1].info = "special"
    await world.pool.refresh()
    replica = world.pool.pick(lambda info: info == "special")
    assert replica is not None
    assert replica.stub is world.stubs[1]
    assert world.pool.pick(lambda info: info == "unheard of") is None


async def test_replicas_are_added_and_removed_as_the_name_changes(world: World) -> None:
    await world.pool.refresh()
    world.names["draft:1"] = ["10.0.0.2:1", "10.0.0.3:1"]
    world.pool._replicas["10.0.0.1:1"].stub.info = None  # it went away
    await world.pool.refresh()  # and is seen to
    await world.pool.refresh()
    assert sorted(replica.address for replica in world.pool.live()) == ["10.0.0.2:1", "10.0.0.3:1"]
    assert set(world.pool._replicas) == {"10.0.0.2:1", "10.0.0.3:1"}


async def test_name_that_cannot_be_resolved_for_a_while_loses_nobody(world: World) -> None:
    await world.pool.refresh()
    world.names.clear()
    await world.pool.refresh()
    assert len(world.pool.live()) == 2


async def test_replica_that_stalls_counts_as_absent_behind_the_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.pool.refresh()
    monkeypatch.setattr(router, "INFO_DEADLINE_S", 0.05)

    async def stall() -> str:
        await asyncio.sleep(60)
        return "never"

    monkeypatch.setattr(world.stubs[0], "answer", stall)
    monkeypatch.setattr(world.pool, "_get_info", lambda stub: stub.answer())
    await asyncio.wait_for(world.pool.refresh(), 5)
    assert [replica.stub for replica in world.pool.live()] == [world.stubs[1]]
