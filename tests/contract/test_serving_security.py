"""Tokens, TLS and mTLS between real ends."""

from __future__ import annotations

from pathlib import Path

import certificates
import grpc
import grpc.aio
import pytest
from fake_orchestrator import FakeOrchestrator
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider import AsyncClient, Client, Retry, Unauthenticated, Unavailable
from outrider.serving.auth import Security
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import orchestrator_pb2_grpc, target_pb2, target_pb2_grpc

ONCE = Retry(attempts=1)
RIGHT = "right"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.mark.parametrize("token", [None, "wrong", "righ", "right "])
async def test_a_call_without_the_right_token_is_refused(token: str | None) -> None:
    fake = FakeOrchestrator()
    async with (
        running(ServiceSettings(token=RIGHT), fake) as address,
        AsyncClient(address, token=token) as client,
    ):
        with pytest.raises(Unauthenticated):
            await client.generate("hi")
        with pytest.raises(Unauthenticated):
            await client.info()
    assert not fake.requests


async def test_a_call_with_the_right_token_passes() -> None:
    async with running(ServiceSettings(token=RIGHT), FakeOrchestrator()) as address:
        async with AsyncClient(address, token=RIGHT) as client:
            assert (await client.generate("hi")).text == "abcdef"
        async with connect(address, Security(token=RIGHT)) as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            assert (await stub.GetInfo(pb.OrchestratorInfoRequest(), timeout=5)).version == "1"
            replies = [reply async for reply in stub.Generate(pb.GenerateRequest(), timeout=5)]
            assert replies[-1].HasField("summary")


async def test_a_stream_is_refused_before_it_sends_anything() -> None:
    async with (
        running(ServiceSettings(token=RIGHT), FakeOrchestrator()) as address,
        connect(address) as channel,
    ):
        session = target_pb2_grpc.TargetStub(channel).Verify(timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_of_both_sides_carries_the_token() -> None:
    async with (
        running(ServiceSettings(token=RIGHT), FakeOrchestrator()) as address,
        connect(address, Security(token=RIGHT)) as channel,
    ):
        session = target_pb2_grpc.TargetStub(channel).Verify(timeout=5)
        await session.write(target_pb2.TargetRequest())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session.read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # behind the token check


async def test_health_needs_no_token() -> None:
    async with (
        running(ServiceSettings(token=RIGHT), FakeOrchestrator()) as address,
        connect(address) as channel,
    ):
        reply = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=5
        )
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_tls_serves_callers_that_trust_its_authority(
    files: certificates.Certificates, strangers: certificates.Certificates
) -> None:
    settings = ServiceSettings(tls_cert=files.cert, tls_key=files.key, token=RIGHT)
    async with running(settings, FakeOrchestrator()) as address:
        async with AsyncClient(address, ca=files.ca, token=RIGHT) as client:
            assert (await client.generate("hi")).text == "abcdef"
        async with connect(address, Security(ca=files.ca, token=RIGHT)) as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            assert (await stub.GetInfo(pb.OrchestratorInfoRequest(), timeout=5)).version == "1"
        for other in (
            AsyncClient(address, ca=strangers.ca, token=RIGHT, retry=ONCE),
            AsyncClient(address, token=RIGHT, retry=ONCE),
        ):
            async with other as client:
                with pytest.raises(Unavailable):
                    await client.generate("hi", timeout=5)


async def test_mtls_serves_only_callers_with_a_certificate_of_its_authority(
    files: certificates.Certificates, strangers: certificates.Certificates
) -> None:
    settings = ServiceSettings(tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca)
    async with running(settings, FakeOrchestrator()) as address:
        async with AsyncClient(address, ca=files.ca, cert=files.cert, key=files.key) as client:
            assert (await client.generate("hi")).text == "abcdef"
        async with connect(address, settings.security) as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            assert (await stub.GetInfo(pb.OrchestratorInfoRequest(), timeout=5)).version == "1"
        for cert, key in ((None, None), (strangers.cert, strangers.key)):
            async with AsyncClient(address, ca=files.ca, cert=cert, key=key, retry=ONCE) as client:
                with pytest.raises(Unavailable):
                    await client.generate("hi", timeout=5)


@pytest.mark.parametrize("make", [Client, AsyncClient])
async def test_plaintext_beyond_loopback_must_be_allowed(
    make: type[Client] | type[AsyncClient],
) -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1:50050' is not loopback"):
        make("10.0.0.1:50050")
    allowed = make("10.0.0.1:50050", insecure=True)
    closed = allowed.close()
    if closed is not None:
        await closed


def test_contradicting_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cert and key"):
        Client("127.0.0.1:1", ca="ca.pem", cert="cert.pem")
    with pytest.raises(ValueError, match="cert: given without tls"):
        Client("127.0.0.1:1", cert="cert.pem", key="key.pem")
    with pytest.raises(OSError, match=r"none\.pem"):
        Client("127.0.0.1:1", ca=tmp_path / "none.pem")


def test_the_token_is_not_shown() -> None:
    assert RIGHT not in repr(Security(token=RIGHT))
