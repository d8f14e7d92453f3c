"""The target's side of a session where the target says nothing, or the wrong thing."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest

from orchestrator.peers import PeerFull, PeerLost
from orchestrator.remote_target import RemoteVerifier
from outrider.core.round import Features, SamplingParams
from outrider.core.tree import TokenTree
from outrider.serving.channels import connect
from outrider.v1 import target_pb2, target_pb2_grpc

GREEDY = SamplingParams(temperature=0.0)


class Call:
    """A Verify call that answers with what the test laid out."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.written: list[target_pb2.TargetRequest] = []

    async def write(self, message: target_pb2.TargetRequest) -> None:
        self.written.append(message)

    async def read(self) -> Any:
        reply = self.replies.pop(0) if self.replies else grpc.aio.EOF
        if isinstance(reply, grpc.StatusCode):
            raise grpc.aio.AioRpcError(reply, grpc.aio.Metadata(), grpc.aio.Metadata(), "why")
        return reply

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return "ended"

    def cancel(self) -> None: ...


class Stub:
    def __init__(self, call: Call) -> None:
        self.call = call

    def Verify(self) -> Call:
        return self.call


async def opened(*replies: Any) -> tuple[RemoteVerifier, Call]:
    call = Call(*replies)
    verifier = RemoteVerifier(Stub(call), 64, 1.0)
    await verifier.open("r", [1, 2, 3], GREEDY, 8, None)
    return verifier, call


def tokens(*ids: int, base_len: int) -> target_pb2.TargetReply:
    return target_pb2.TargetReply(
        free_run_tokens=target_pb2.FreeRunTokens(tokens=ids, base_len=base_len)
    )


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and says nothing, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_target_that_takes_connections_and_says_nothing_is_lost_behind_the_deadline(
    silent: str,
) -> None:
    async with connect(silent) as channel:
        stub = target_pb2_grpc.TargetStub(channel)  # type: ignore[no-untyped-call]
        verifier = RemoteVerifier(stub, 64, 0.2)

        async def generate() -> None:
            await verifier.open("r", [1, 2, 3], GREEDY, 8, None)
            await verifier.verify(4, None, TokenTree.root_only(4), {}, True)

        with pytest.raises(PeerLost, match=r"target: .* within 0\.2 s"):
            await asyncio.wait_for(generate(), 5)
        verifier.close()


async def test_stream_that_ends_early_is_lost() -> None:
    verifier, _ = await opened()
    with pytest.raises(PeerLost, match="target: OK: ended"):
        await verifier.prefill()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, PeerLost),
        (grpc.StatusCode.INTERNAL, PeerLost),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, PeerFull),
    ],
)
async def test_status_of_the_target_is_passed_on(
    code: grpc.StatusCode, kind: type[PeerLost]
) -> None:
    verifier, _ = await opened(code)
    with pytest.raises(kind, match=f"target: {code.name}: why") as error:
        await verifier.prefill()
    assert type(error.value) is kind


async def test_evidence_that_does_not_fit_the_supports_is_a_lost_target() -> None:
    evidence = target_pb2.Evidence(samples=[1], outside=[0.5])
    verifier, _ = await opened(target_pb2.TargetReply(evidence=evidence))
    with pytest.raises(PeerLost, match="target: evidence: 1 supports"):
        await verifier.prefill()


async def test_free_run_is_acknowledged_every_eight_tokens() -> None:
    replies = [tokens(n, base_len=4 + n) for n in range(1, 21)]
    end = target_pb2.TargetReply(free_run_end=target_pb2.FreeRunEnd(base_len=24))
    verifier, call = await opened(*replies, end)
    got = [part.tokens[0] async for part in verifier.free_run(4, None, 9, 20, [])]
    assert got == list(range(1, 21))
    acknowledged = [m.acknowledge.base_len for m in call.written if m.HasField("acknowledge")]
    assert acknowledged == [12, 20]


async def test_free_run_hands_feature_rows_on_and_refuses_what_are_none() -> None:
    good, bad = tokens(1, base_len=5), tokens(2, base_len=6)
    for reply, data in ((good, b"1234"), (bad, b"123")):
        row = reply.free_run_tokens.features
        row.start, row.rows, row.width, row.data = 3, 1, 2, data
    verifier, _ = await opened(good, bad)
    run = verifier.free_run(4, None, 9, 20, [])
    assert (await anext(run)).features == Features(3, 1, 2, b"1234")
    with pytest.raises(PeerLost, match=r"target: features\.data"):
        await anext(run)


async def test_bytes_of_rounds_leave_features_out() -> None:
    evidence = target_pb2.Evidence(samples=[1])
    evidence.features.rows, evidence.features.width = 50, 100
    evidence.features.data = b"x" * 10_000
    verifier, _ = await opened(target_pb2.TargetReply(evidence=evidence))
    await verifier.prefill()
    assert 0 < verifier.round_bytes < 100
