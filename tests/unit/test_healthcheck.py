"""The health check that containers run inside themselves."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.serving import healthcheck


@contextmanager
def serving(status: int) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_a_serving_server_is_healthy() -> None:
    with serving(health_pb2.HealthCheckResponse.SERVING) as address:
        assert healthcheck.main([address]) is None


def test_a_draining_server_is_not() -> None:
    with serving(health_pb2.HealthCheckResponse.NOT_SERVING) as address:
        assert healthcheck.problem(address) == f"{address}: NOT_SERVING"


def test_nobody_listening_is_reported_within_the_deadline() -> None:
    assert healthcheck.problem("127.0.0.1:1", deadline_s=0.3) == "127.0.0.1:1: DEADLINE_EXCEEDED"


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(health_pb2.HealthCheckResponse.SERVING) as address:
        monkeypatch.setenv("OUTRIDER_HEALTHCHECK", address)
        assert healthcheck.main([]) is None


def test_no_address_at_all_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_HEALTHCHECK", raising=False)
    assert healthcheck.main([]) == "usage: python -m outrider.serving.healthcheck HOST:PORT"
