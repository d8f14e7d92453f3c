"""The life of a server: start and stop order, health, drain, statuses, size limits."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from fake_orchestrator import FakeOrchestrator, eventually
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from outrider.cli.processes import free_ports
from outrider.serving import errors
from outrider.serving.channels import connect
from outrider.serving.server import running, serve
from outrider.serving.settings import ServiceSettings
from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import orchestrator_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAME = "outrider.v1.Orchestrator"


async def status(channel: grpc.aio.Channel, name: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    return int(reply.status)


def generate(
    channel: grpc.aio.Channel, request: pb.GenerateRequest | None = None
) -> grpc.aio.UnaryStreamCall:
    stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
    return stub.Generate(request or pb.GenerateRequest(), timeout=10)


async def collect(call: AsyncIterator[pb.GenerateReply]) -> list[pb.GenerateReply]:
    return [reply async for reply in call]


async def test_a_service_is_healthy_by_name_and_as_a_whole() -> None:
    async with (
        running(ServiceSettings(), FakeOrchestrator()) as address,
        connect(address) as channel,
    ):
        assert await status(channel) == SERVING
        assert await status(channel, NAME) == SERVING


async def test_nothing_is_answered_before_the_service_has_warmed_up() -> None:
    warm = asyncio.Event()

    class Slow(FakeOrchestrator):
        async def start(self) -> None:
            await super().start()
            await warm.wait()

    slow, ended = Slow(), asyncio.Event()
    [port] = free_ports(1)

    async def run() -> None:
        async with running(ServiceSettings(listen=f"127.0.0.1:{port}"), slow):
            await ended.wait()

    task = asyncio.create_task(run())
    await slow.started.wait()
    async with connect(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=0.3)
        warm.set()
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10, wait_for_ready=True)
        assert reply.status == SERVING
    ended.set()
    await task


async def test_a_watcher_sees_the_drain_before_calls_end() -> None:
    fake, drain = FakeOrchestrator(endless=True), asyncio.Event()
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def run() -> None:
        async with running(ServiceSettings(grace_s=1.0), fake) as address:
            addresses.put_nowait(address)
            await drain.wait()

    task = asyncio.create_task(run())
    async with connect(await addresses.get()) as channel:
        call = generate(channel)
        await call.read()
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        drain.set()
        assert (await watch.read()).status == NOT_SERVING
        assert fake.live == 1
        watch.cancel()
        await call.read()
        call.cancel()
        await task
    assert fake.stopped


async def test_calls_that_end_within_the_grace_end_well() -> None:
    fake = FakeOrchestrator(endless=True)
    async with running(ServiceSettings(grace_s=10), fake) as address:
        channel = connect(address)
        replies = aiter(generate(channel))
        await anext(replies)
        asyncio.get_running_loop().call_later(0.3, lambda: setattr(fake, "endless", False))
    rest = [reply async for reply in replies]
    assert rest[-1].HasField("summary")
    await channel.close()


async def test_calls_that_outlast_the_grace_end_with_a_status_and_free_their_handlers() -> None:
    fake = FakeOrchestrator(endless=True)
    async with running(ServiceSettings(grace_s=0.2), fake) as address:
        channel = connect(address)
        replies = aiter(generate(channel))
        await anext(replies)
        started = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - started < 5
    with pytest.raises(grpc.aio.AioRpcError):
        await collect(replies)
    await eventually(lambda: fake.live == 0)
    await channel.close()


async def test_new_calls_are_unavailable_while_draining() -> None:
    fake = FakeOrchestrator(endless=True)
    async with running(ServiceSettings(grace_s=1), fake) as address:
        channel = connect(address)
        call = generate(channel)
        await call.read()
        late = asyncio.get_running_loop().create_task(asyncio.sleep(0.3))
        late.add_done_callback(
            lambda _: outcomes.append(asyncio.ensure_future(collect(generate(channel))))
        )
        outcomes: list[asyncio.Future[list[pb.GenerateReply]]] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await outcomes[0]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    call.cancel()
    await channel.close()


async def test_the_service_stops_where_its_start_failed() -> None:
    class Refusing(FakeOrchestrator):
        async def start(self) -> None:
            raise errors.FailedPrecondition("tokenizers differ: a and b")

    refusing = Refusing()
    with pytest.raises(errors.FailedPrecondition):
        async with running(ServiceSettings(), refusing):
            pass
    assert refusing.stopped


async def test_a_service_that_refuses_to_start_is_reported_and_ends_with_status_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Refusing(FakeOrchestrator):
        async def start(self) -> None:
            raise errors.FailedPrecondition("tokenizers differ: a and b")

    before = logging.getLogger().handlers[:]
    try:
        assert await serve(ServiceSettings(), Refusing()) == 1
    finally:
        logging.getLogger().handlers[:] = before
    assert "cannot serve: tokenizers differ: a and b" in capsys.readouterr().err


async def test_a_port_that_is_taken_is_an_error_and_not_shared() -> None:
    async with running(ServiceSettings(), FakeOrchestrator()) as address:
        with pytest.raises(OSError, match=f"listen: cannot bind {address}"):
            async with running(ServiceSettings(listen=address), FakeOrchestrator()):
                pass


PROGRAM = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from fake_orchestrator import FakeOrchestrator
from outrider.serving.server import serve
from outrider.serving.settings import ServiceSettings
settings = ServiceSettings(grace_s=0.5, token="s3cret-token")
sys.exit(asyncio.run(serve(settings, FakeOrchestrator(endless=True))))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_with_status_0_and_secrets_stay_out_of_the_log(
    number: int,
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    log = ""
    while "serving outrider.v1.Orchestrator on 127.0.0.1:" not in log:
        line = await process.stderr.readline()
        assert line, log
        log += line.decode()
    process.send_signal(number)
    _, rest = await process.communicate()
    assert process.returncode == 0
    assert "draining" in rest.decode()
    assert "settings listen=127.0.0.1:0" in log
    assert "s3cret" not in log + rest.decode()


async def test_reflection_lists_the_service() -> None:
    async with (
        running(ServiceSettings(), FakeOrchestrator()) as address,
        connect(address) as channel,
    ):
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=5)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        reply = await call.read()
        await call.done_writing()
        names = {service.name for service in reply.list_services_response.service}
        assert {NAME, "grpc.health.v1.Health"} <= names
        call.cancel()
