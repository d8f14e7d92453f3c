"""How calls end: the status table, bugs, cancellation and size limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from fake_orchestrator import FakeOrchestrator, eventually, stumble

from outrider.serving import errors
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import orchestrator_pb2_grpc, target_pb2, target_pb2_grpc


class FakeTarget(target_pb2_grpc.TargetServicer):
    """A streaming servicer that fails as told, behind the first message."""

    name = "outrider.v1.Target"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def register(self, server: grpc.aio.Server) -> None:
        target_pb2_grpc.add_TargetServicer_to_server(self, server)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def Verify(self, requests, context):  # type: ignore[no-untyped-def]
        async for _ in requests:
            yield target_pb2.TargetReply()
            raise self.error


def generate(
    channel: grpc.aio.Channel, request: pb.GenerateRequest | None = None
) -> grpc.aio.UnaryStreamCall:
    stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
    return stub.Generate(request or pb.GenerateRequest(), timeout=10)


async def collect(call: AsyncIterator[pb.GenerateReply]) -> list[pb.GenerateReply]:
    return [reply async for reply in call]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            errors.InvalidArgument("max_tokens: 0, limit at least 1"),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (errors.FailedPrecondition("base_len: 3, expected 4"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ResourceExhausted("sessions: 64 open"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.Unavailable("loading"), grpc.StatusCode.UNAVAILABLE),
        (errors.Unauthenticated("no"), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_service_errors_end_calls_of_every_kind_with_their_status(
    error: errors.ServiceError, code: grpc.StatusCode
) -> None:
    fake = FakeOrchestrator(faults=[stumble(error), stumble(error)])
    async with running(ServiceSettings(), fake) as address, connect(address) as channel:
        single = orchestrator_pb2_grpc.OrchestratorStub(channel).GetInfo(
            pb.OrchestratorInfoRequest(), timeout=5
        )
        for call in (single, collect(generate(channel))):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert (caught.value.code(), caught.value.details()) == (code, str(error))
    async with (
        running(ServiceSettings(), FakeTarget(error)) as address,
        connect(address) as channel,
    ):
        session = target_pb2_grpc.TargetStub(channel).Verify(timeout=5)
        await session.write(target_pb2.TargetRequest())
        assert await session.read() == target_pb2.TargetReply()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session.read()
        assert (caught.value.code(), caught.value.details()) == (code, str(error))


async def test_a_full_service_says_when_to_come_back() -> None:
    fake = FakeOrchestrator(
        faults=[stumble(errors.ResourceExhausted("full", retry_after_s=0.2501))]
    )
    async with running(ServiceSettings(), fake) as address, connect(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(generate(channel))
        assert ("retry-after-ms", "251") in tuple(caught.value.trailing_metadata())


async def test_a_bug_is_logged_with_its_traceback_and_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeOrchestrator(faults=[stumble(KeyError("inner secret"))])
    async with running(ServiceSettings(), fake) as address, connect(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(generate(channel))
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.INTERNAL,
        "internal error",
    )
    assert "KeyError: 'inner secret'" in caplog.text


async def test_a_cancelled_call_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeOrchestrator(endless=True)
    async with running(ServiceSettings(), fake) as address, connect(address) as channel:
        call = generate(channel)
        await call.read()
        call.cancel()
        await eventually(lambda: fake.live == 0)
    assert fake.cancelled == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_unknown_method_is_unimplemented_and_told_what_is_served() -> None:
    async with (
        running(ServiceSettings(), FakeOrchestrator()) as address,
        connect(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await target_pb2_grpc.TargetStub(channel).GetInfo(
                target_pb2.TargetInfoRequest(), timeout=5
            )
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (
            caught.value.details()
            == "outrider.v1.Target.GetInfo is not served here: this is outrider.v1.Orchestrator"
        )


def sized_request(size: int) -> pb.GenerateRequest:
    """A request of exactly so many bytes."""
    request = pb.GenerateRequest(prompt=b"")
    request.prompt = b"a" * (size - 8)
    request.prompt += b"a" * (size - request.ByteSize())
    assert request.ByteSize() == size
    return request


async def test_a_message_at_the_size_limit_passes_and_one_byte_more_is_refused_by_the_server() -> (
    None
):
    settings = ServiceSettings(max_message_mib=1)
    fake = FakeOrchestrator()
    async with running(settings, fake) as address, connect(address, max_message_mib=2) as channel:
        limit = settings.max_message_bytes
        assert (await collect(generate(channel, sized_request(limit))))[-1].HasField("summary")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(generate(channel, sized_request(limit + 1)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(limit) in (caught.value.details() or "")
    assert len(fake.requests) == 1


async def test_a_message_over_the_limit_of_the_sender_is_refused_before_it_leaves() -> None:
    fake = FakeOrchestrator()
    async with (
        running(ServiceSettings(), fake) as address,
        connect(address, max_message_mib=1) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(generate(channel, sized_request((1 << 20) + 1)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not fake.requests
