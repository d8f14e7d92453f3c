import asyncio
import itertools
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest
from draft_server import (
    NUMERICS,
    POISON,
    VOCAB,
    Q,
    Server,
    open_message,
    request,
    serving,
    status,
)

from draft_service.engine import Limits
from draft_service.session import Drafted, Prefilled, Request
from outrider.core.round import Budget, SamplingParams
from outrider.core.tree import TokenTree
from outrider.serving.wire_rounds import proposal_from_proto


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as it:
        yield it


async def test_open_is_answered_by_ready_and_a_request_by_its_proposal(server: Server) -> None:
    call = await server.opened()
    await call.write(request(1, 4, [10]))
    proposal = (await call.read()).proposal
    assert (proposal.round, proposal.base_len) == (1, 4)
    assert list(proposal.tree.tokens) == [11, 12]
    assert list(proposal.tree.parents) == [0, 1]
    assert proposal.method == ""
    await call.write(request(3, 6, [11, 12]))
    assert list((await call.read()).proposal.tree.tokens) == [13, 14]
    assert server.steered.batches == [[[1, 2, 3, 10]], [[1, 2, 3, 10, 11, 12]]]


async def test_the_time_that_the_prompt_and_committed_tokens_take_is_told() -> None:
    async with serving(Limits(prefill_rows=4)) as slowly:
        slowly.slow.slice_s = 0.01
        call = slowly.stream()
        await call.write(open_message([7] * 9, method="slow"))
        assert 25_000 <= (await call.read()).ready.prefill_us < 200_000
        await call.write(request(1, 29, [8] * 20))
        proposal = (await call.read()).proposal
        assert 45_000 <= proposal.prefill_us < 400_000
        await call.write(request(2, 30, [8]))
        assert (await call.read()).proposal.prefill_us < 20_000


async def test_ngram_proposes_over_the_wire(server: Server) -> None:
    call = await server.opened([1, 2, 3, 4, 1], method="ngram", temperature=0.7)
    await call.write(request(1, 6, [2]))
    proposal = (await call.read()).proposal
    assert list(proposal.tree.tokens) == [3, 4]
    assert not proposal.drawn_from


async def test_drawn_proposal_carries_its_distribution_to_the_bit(server: Server) -> None:
    call = await server.opened(method="drawn", temperature=1.0)
    await call.write(request(1, 4, [10]))
    proposal = proposal_from_proto((await call.read()).proposal, 10, "drawn", VOCAB, 8)
    assert proposal.tree == TokenTree.chain(10, [40])
    assert np.array_equal(proposal.drawn_from[0].ids, Q.ids)
    assert np.array_equal(proposal.drawn_from[0].probabilities, Q.probabilities)


async def test_empty_proposal_is_an_answer(server: Server) -> None:
    call = await server.opened(method="ngram")
    await call.write(request(1, 3, []))
    reply = await call.read()
    assert reply.WhichOneof("message") == "proposal"
    assert not reply.proposal.tree.tokens


async def test_half_closed_stream_ends_behind_the_answers_that_are_due(server: Server) -> None:
    async def messages() -> AsyncIterator[object]:
        yield open_message()
        yield request(1, 4, [10])

    replies = [
        reply.WhichOneof("message") async for reply in server.stub.Propose(messages(), timeout=10)
    ]
    assert replies == ["ready", "proposal"]
    assert await server.live(0)


async def test_info_names_drafters_limits_and_model(server: Server) -> None:
    info = await server.info()
    assert [drafter.method for drafter in info.drafters] == ["steered", "slow", "drawn", "ngram"]
    assert [drafter.model for drafter in info.drafters] == ["fake", "fake", "fake", ""]
    told = [drafter.numerics for drafter in info.drafters if drafter.HasField("numerics")]
    assert [(each.dtype, each.fingerprint) for each in told] == [
        ("float32", NUMERICS.fingerprint)
    ] * 3
    assert not info.drafters[-1].HasField("numerics"), "prompt lookup has no model"
    assert not info.model.HasField("numerics"), "the target's weights are elsewhere"
    assert all(drafter.recommended_depth > 0 for drafter in info.drafters)
    assert (info.model.tokenizer_fingerprint, info.model.vocab_size, info.model.context_length) == (
        "f00d",
        100,
        64,
    )
    assert (info.max_depth, info.max_nodes, info.max_sessions) == (16, 64, 64)
    assert (info.live_sessions, info.sessions_total) == (0, 0)


async def test_newest_request_wins_and_the_tokens_of_all_are_applied(server: Server) -> None:
    blocker, call = await server.opened(), await server.opened()
    server.steered.gate.clear()
    await blocker.write(request(1, 3))
    await asyncio.sleep(0.1)
    for round_ in (1, 2, 3):
        await call.write(request(round_, 3 + round_, [20 + round_]))
    await asyncio.sleep(0.1)
    server.steered.gate.set()
    proposal = (await call.read()).proposal
    assert (proposal.round, proposal.base_len) == (3, 6)
    assert list(proposal.tree.tokens) == [24, 25]
    assert proposal.queue_us > 50_000
    assert server.steered.batches == [[[1, 2, 3]], [[1, 2, 3, 21, 22, 23]]]


async def test_waiting_sessions_share_a_batch(server: Server) -> None:
    calls = [await server.opened([i]) for i in range(4)]
    server.steered.gate.clear()
    for call in calls:
        await call.write(request(1, 2, [50]))
        await asyncio.sleep(0.05)
    server.steered.gate.set()
    for call in calls:
        assert list((await call.read()).proposal.tree.tokens) == [51, 52]
    assert [len(batch) for batch in server.steered.batches] == [1, 3]


async def test_drafter_that_fails_ends_only_its_own_stream_without_a_traceback(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    blocker, healthy, ill = [await server.opened() for _ in range(3)]
    server.steered.gate.clear()
    await blocker.write(request(1, 3))
    await asyncio.sleep(0.1)
    await ill.write(request(1, 4, [POISON]))
    await healthy.write(request(1, 4, [30]))
    await asyncio.sleep(0.1)
    server.steered.gate.set()
    code, details = await status(ill)
    assert code is grpc.StatusCode.INTERNAL
    assert "poisoned" not in details
    assert "ArithmeticError: poisoned" in caplog.text
    assert list((await healthy.read()).proposal.tree.tokens) == [31, 32]
    await healthy.write(request(2, 5, [40]))
    assert list((await healthy.read()).proposal.tree.tokens) == [41, 42]


async def test_long_prompt_lets_other_sessions_draft_between_its_slices() -> None:
    async with serving(Limits(prefill_rows=2)) as server:
        quick = await server.opened([1], method="slow")
        long = server.stream()
        server.slow.gate.clear()
        await long.write(open_message([2] * 40, method="slow"))
        await asyncio.sleep(0.1)
        await quick.write(request(1, 2, [9]))
        await asyncio.sleep(0.1)
        server.slow.gate.set()
        await quick.read()
        assert (await long.read()).WhichOneof("message") == "ready"
        proposed = server.slow.log.index(("propose", 1))
        assert server.slow.log[proposed + 1 :].count(("prefill", 2)) >= 18


async def test_cancelled_stream_frees_its_session_within_a_second(server: Server) -> None:
    calls = [await server.opened() for _ in range(3)]
    assert await server.live(3)
    for call in calls:
        call.cancel()
    assert await server.live(0)
    assert server.steered.open_sessions == 0
    assert (await server.info()).sessions_total == 3


async def test_session_beyond_the_limit_is_refused_with_a_time_to_come_back() -> None:
    async with serving(Limits(max_sessions=1)) as server:
        first = await server.opened()
        second = server.stream()
        await second.write(open_message())
        code, details = await status(second)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == "sessions: 1 open, limit 1"
        assert "retry-after-ms" in dict(await second.trailing_metadata())
        first.cancel()
        assert await server.live(0)
        await server.opened()


async def test_stopping_the_engine_ends_open_streams_as_unavailable(server: Server) -> None:
    calls = [await server.opened() for _ in range(2)]
    await server.engine.stop()
    for call in calls:
        assert (await status(call))[0] is grpc.StatusCode.UNAVAILABLE
    assert server.steered.open_sessions == 0


async def test_many_sessions_at_once_all_get_their_own_answers(server: Server) -> None:
    async def one(first: int) -> list[int]:
        call = await server.opened([first])
        roots = []
        for round_ in itertools.islice(itertools.count(1), 10):
            await call.write(request(round_, 1 + round_, [first]))
            roots.append((await call.read()).proposal.tree.tokens[0])
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return roots

    results = await asyncio.gather(*(one(first) for first in range(20)))
    assert results == [[first + 1] * 10 for first in range(20)]
    assert await server.live(0)


async def test_stream_that_is_not_read_gets_no_pile_of_replies(server: Server) -> None:
    session = server.engine.open("steered", [1], SamplingParams(temperature=0.0))
    for round_ in range(10):
        await session.submit(Request(round_, 2 + round_, [round_], Budget(1, 1)))
        await asyncio.sleep(0.01)
    assert len(server.steered.batches) < 3
    replies = session.replies()
    assert isinstance(await anext(replies), Prefilled)
    rounds = []
    session.finish()
    async for reply in replies:
        assert isinstance(reply, Drafted)
        rounds.append(reply.request.round)
    assert rounds[-1] == 9
    assert server.steered.batches[-1] == [[1, *range(10)]]
    server.engine.close(session)


async def test_tokens_that_come_in_bulk_are_prefilled_in_slices_before_the_draft() -> None:
    async with serving(Limits(prefill_rows=4)) as server:
        call = await server.opened([7], method="slow")
        server.slow.log.clear()
        await call.write(request(1, 21, [8] * 20))
        assert (await call.read()).proposal.base_len == 21
        assert server.slow.log == [("prefill", 7)] * 5 + [("propose", 7)]
