"""The life of a server, the same for every service.

Start: the caller has loaded its model; build -> health (NOT_SERVING), service, reflection -> bind
    -> warm up
-> start -> SERVING. Stop: NOT_SERVING -> running calls get their grace -> service -> logs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from outrider.serving.auth import server_credentials, split_address
from outrider.serving.channels import server_options
from outrider.serving.errors import ServiceError
from outrider.serving.interceptors import ErrorInterceptor, TokenInterceptor
from outrider.serving.settings import ServiceSettings
from outrider.serving.telemetry import logging as service_logging

logger = logging.getLogger(__name__)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Service(Protocol):
    """What a service brings to its server."""

    @property
    def name(self) -> str:
        """Full gRPC service name, such as outrider.v1.Target."""

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""

    async def start(self) -> None:
        """Warms up, before the first call; a ServiceError says why it cannot serve."""

    async def stop(self) -> None:
        """Ends the engine, behind the last call; also after a start that failed."""


async def serve(settings: ServiceSettings, service: Service) -> int:
    """Serves until SIGTERM or SIGINT, then drains.

    Returns:
        The process's exit status: 0 behind a drain, 1 where the service could not start.
    """
    service_logging.configure(settings.log_level)
    logger.info("settings %s", settings.describe())
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with running(settings, service) as address:
            logger.info("serving %s on %s", service.name, address)
            await stopped.wait()
            logger.info("draining, grace %.1f s", settings.grace_s)
    except (ServiceError, OSError) as error:
        logger.error("%s cannot serve: %s", service.name, error)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        service_logging.flush()
    logger.info("stopped")
    return 0


@asynccontextmanager
async def running(settings: ServiceSettings, service: Service) -> AsyncIterator[str]:
    """Serves within the block, which gets the bound address `HOST:PORT`; drains behind it.

    Raises:
        OSError: the address cannot be bound.
        ServiceError: the service refused to start.
    """
    server = grpc.aio.server(
        interceptors=_interceptors(settings, service.name),
        options=server_options(settings.max_message_mib),
    )
    status = health_aio.HealthServicer()
    await _say(status, service, NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    service.register(server)
    reflection.enable_server_reflection(
        (service.name, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    address = _bind(server, settings)
    try:
        await service.start()
        await server.start()
        await _say(status, service, SERVING)
        yield address
    finally:
        await status.enter_graceful_shutdown()
        await server.stop(settings.grace_s)
        await service.stop()


def _interceptors(settings: ServiceSettings, served: str) -> list[grpc.aio.ServerInterceptor]:
    errors = ErrorInterceptor(served)
    if settings.token is None:
        return [errors]
    return [TokenInterceptor(settings.token.get_secret_value()), errors]


def _bind(server: grpc.aio.Server, settings: ServiceSettings) -> str:
    host, wanted = split_address(settings.listen)
    try:
        if settings.tls_cert is not None and settings.tls_key is not None:
            credentials = server_credentials(settings.tls_cert, settings.tls_key, settings.tls_ca)
            port = server.add_secure_port(settings.listen, credentials)
        else:
            port = server.add_insecure_port(settings.listen)
    except RuntimeError as error:
        raise OSError(f"listen: cannot bind {settings.listen}: {error}") from error
    if port == 0 or (wanted and port != wanted):
        raise OSError(f"listen: cannot bind {settings.listen}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _say(status: health_aio.HealthServicer, service: Service, value: int) -> None:
    for name in (health.OVERALL_HEALTH, service.name):
        await status.set(name, value)
