"""The drafter's side of a session against a call that tests play: late, lost and stuck replies."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from orchestrator import remote_draft
from orchestrator.remote_draft import RemoteDrafter
from outrider.core.round import Budget, Features, SamplingParams
from outrider.drafting.base import FeatureSpec
from outrider.v1 import draft_pb2, types_pb2

BUDGET = Budget(2, 2, 4, time_left_s=0.1)
BROKEN = object()


class Call:
    """A Propose call as grpc.aio's behaves, its other end in the test's hands."""

    def __init__(self) -> None:
        self.written: list[draft_pb2.DraftMessage] = []
        self.replies: asyncio.Queue[Any] = asyncio.Queue()
        self.stuck = False
        self.cancelled = asyncio.Event()

    async def write(self, message: draft_pb2.DraftMessage) -> None:
        try:
            if self.stuck:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self.written.append(message)

    async def read(self) -> Any:
        reading = asyncio.create_task(self.replies.get())
        ending = asyncio.create_task(self.cancelled.wait())
        try:
            await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise asyncio.CancelledError
            reply = reading.result()
        finally:
            reading.cancel()
            ending.cancel()
        if reply is BROKEN:
            code = self.code if hasattr(self, "code") else grpc.StatusCode.UNAVAILABLE
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "broken")
        return reply

    def cancel(self) -> None:
        self.cancelled.set()

    def say_ready(self) -> None:
        self.replies.put_nowait(draft_pb2.DraftReply(ready=draft_pb2.Ready()))

    def propose(self, round_: int, *tokens: int, base_len: int = 3) -> None:
        tree = types_pb2.Tree(tokens=tokens, parents=range(len(tokens)))
        proposal = draft_pb2.Proposal(round=round_, base_len=base_len, tree=tree)
        self.replies.put_nowait(draft_pb2.DraftReply(proposal=proposal))


class World:
    def __init__(self, **fields: Any) -> None:
        self.calls: list[Call] = []
        self.released = 0
        self.drafter = RemoteDrafter(
            self._connect, "m", "r", [1, 2, 3], SamplingParams(temperature=0.0), 50, 100, **fields
        )
        self.drafter.open()

    async def _connect(self) -> tuple[Call, Callable[[], None]]:
        self.calls.append(Call())
        return self.calls[-1], self._release

    def _release(self) -> None:
        self.released += 1

    async def opened(self, number: int = 1) -> Call:
        async with asyncio.timeout(2):
            while len(self.calls) < number or not self.calls[-1].written:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            self.calls[-1].say_ready()
            while not self.drafter.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.calls[-1]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(remote_draft, "REOPEN_S", (0.01,))
    made = World(features=FeatureSpec((0,)))
    made.drafter._fed = True  # features came with the prefill
    yield made
    await made.drafter.close()


async def test_proposal_is_asked_for_with_all_that_was_observed(world: World) -> None:
    call = await world.opened()
    assert list(call.written[0].open.prompt_ids) == [1, 2, 3]
    assert call.written[0].open.max_tokens == 47
    world.drafter.observe([4], [Features(3, 1, 1, b"ab")], ())
    world.drafter.observe([5, 6], [Features(4, 2, 1, b"abcd")], [8, 9])
    call.propose(1, 7, 8, base_len=6)
    proposal = await world.drafter.propose(BUDGET)
    request = call.written[1].request
    assert (request.round, request.base_len, list(request.new_tokens)) == (1, 6, [4, 5, 6])
    assert [features.start for features in request.features] == [3, 4]
    assert list(request.samples) == [8, 9]
    assert proposal is not None
    assert proposal.tree.tokens == (6, 7, 8)
    world.drafter.observe([7], [], ())
    call.propose(2)
    await world.drafter.propose(BUDGET)
    assert list(call.written[2].request.new_tokens) == [7]
    assert not call.written[2].request.features


async def test_tokens_observed_while_a_proposal_is_under_way_ride_in_the_next_request(
    world: World,
) -> None:
    call = await world.opened()
    asked = asyncio.create_task(world.drafter.propose(BUDGET))
    while len(call.written) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    world.drafter.observe([4, 5], [], ())
    call.propose(1, 7, 8)
    proposal = await asked
    assert proposal is not None
    assert proposal.tree.tokens == (3, 7, 8)  # behind what it was asked behind
    call.propose(2, base_len=5)
    await world.drafter.propose(BUDGET)
    assert list(call.written[2].request.new_tokens) == [4, 5]


async def test_features_do_not_count_as_bytes_of_the_round(world: World) -> None:
    call = await world.opened()
    world.drafter.observe([4], [Features(3, 1000, 1, b"x" * 2000)], ())
    call.propose(1, 7)
    await world.drafter.propose(BUDGET)
    assert 0 < world.drafter.round_bytes < 100


async def test_samples_of_the_last_tree_ride_once_also_behind_a_free_run(world: World) -> None:
    call = await world.opened()
    world.drafter.observe([4], (), (4, 8))
    world.drafter.observe([5, 6], (), ())
    call.propose(1, 7, base_len=6)
    assert await world.drafter.propose(BUDGET) is not None
    assert list(call.written[1].request.samples) == [4, 8]
    call.propose(2, 7, base_len=6)
    assert await world.drafter.propose(BUDGET) is not None
    assert not call.written[2].request.samples


async def test_a_new_stream_is_told_no_samples_of_the_old_ones_trees(world: World) -> None:
    call = await world.opened()
    world.drafter.observe([4], (), (4, 8))
    call.replies.put_nowait(BROKEN)
    second = await world.opened(2)
    second.propose(1, 7, base_len=4)
    assert await world.drafter.propose(BUDGET) is not None
    assert not second.written[1].request.samples


async def test_late_proposal_is_counted_and_frees_the_session_for_the_next(world: World) -> None:
    call = await world.opened()
    assert await world.drafter.propose(BUDGET) is None
    assert not world.drafter.ready
    assert await world.drafter.propose(BUDGET) is None  # without asking again
    assert len(call.written) == 2
    call.propose(1, 7)
    await asyncio.sleep(0.01)
    assert (world.drafter.late, world.drafter.ready) == (1, True)
    call.propose(2, 9)
    proposal = await world.drafter.propose(BUDGET)
    assert proposal is not None
    assert proposal.tree.tokens == (3, 9)


async def test_stream_that_breaks_ends_the_wait_at_once_and_a_new_one_opens_with_the_prefix(
    world: World,
) -> None:
    call = await world.opened()
    world.drafter.observe([4, 5], (), ())
    call.replies.put_nowait(BROKEN)
    assert await asyncio.wait_for(world.drafter.propose(Budget(2, 2, 4, 60.0)), 1) is None
    second = await world.opened(2)
    assert list(second.written[0].open.prompt_ids) == [1, 2, 3, 4, 5]
    assert second.written[0].open.max_tokens == 45
    assert world.released == 1
    world.drafter.observe([6], (), ())
    second.propose(1, 7, base_len=6)
    assert await world.drafter.propose(BUDGET) is not None
    assert list(second.written[1].request.new_tokens) == [6]


async def test_write_that_is_stuck_costs_one_deadline_and_a_new_stream(world: World) -> None:
    call = await world.opened()
    call.stuck = True
    assert await asyncio.wait_for(world.drafter.propose(BUDGET), 1) is None
    second = await world.opened(2)
    second.propose(1, 7)
    assert await world.drafter.propose(BUDGET) is not None


@pytest.mark.parametrize("code", remote_draft.REFUSALS)
async def test_drafter_that_refuses_is_not_asked_again(world: World, code: grpc.StatusCode) -> None:
    call = await world.opened()
    call.code = code  # type: ignore[attr-defined]
    call.replies.put_nowait(BROKEN)
    await asyncio.sleep(0.1)
    assert len(world.calls) == 1
    assert not world.drafter.ready
    assert world.released == 1


async def test_closing_cancels_the_call_and_gives_the_replica_back(world: World) -> None:
    call = await world.opened()
    await world.drafter.close()
    assert call.cancelled.is_set()
    assert world.released == 1
    assert not world.drafter.ready


async def test_closing_while_there_is_no_replica_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody() -> None:
        return None

    drafter = RemoteDrafter(nobody, "m", "r", [1], SamplingParams(), 9, 100)
    drafter.open()
    await asyncio.sleep(0)
    assert not drafter.ready
    assert await drafter.propose(BUDGET) is None
    await asyncio.wait_for(drafter.close(), 1)


async def test_a_drafter_that_wants_features_is_not_asked_before_some_have_come() -> None:
    world = World(features=FeatureSpec((0,)))
    with pytest.raises(TimeoutError):
        await world.opened()
    assert await world.drafter.propose(BUDGET) is None
    world.drafter.observe([4], [Features(3, 1, 1, b"ab")], ())
    assert world.drafter.ready
    await world.drafter.close()


async def test_proposal_for_another_prefix_is_dropped(world: World) -> None:
    call = await world.opened()
    call.propose(1, 7, base_len=4)
    assert await world.drafter.propose(BUDGET) is None
    call.propose(2, 7)
    assert await world.drafter.propose(BUDGET) is not None
