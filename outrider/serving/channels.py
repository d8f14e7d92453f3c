"""Channels to a service, and the numbers that both ends of a connection must agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from outrider.serving.auth import Security

MAX_MESSAGE_MIB = 16
MIB = 1 << 20
PING_MS = 60_000
PING_TIMEOUT_MS = 20_000
SERVER_MIN_PING_MS = 30_000
RECONNECT_FIRST_MS = 200
RECONNECT_MOST_MS = 5_000

Options = list[tuple[str, int]]


def message_limits(max_message_mib: int) -> Options:
    """The size limit of a message, for either end."""
    return [
        ("grpc.max_send_message_length", max_message_mib * MIB),
        ("grpc.max_receive_message_length", max_message_mib * MIB),
    ]


def channel_options(max_message_mib: int = MAX_MESSAGE_MIB) -> Options:
    """Options of every channel."""
    return [
        *message_limits(max_message_mib),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.min_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_MOST_MS),
        ("grpc.enable_http_proxy", 0),
    ]


def server_options(max_message_mib: int = MAX_MESSAGE_MIB) -> Options:
    """Options of every server.

    With so_reuseport a port that is taken would be shared in silence.
    """
    return [
        *message_limits(max_message_mib),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", SERVER_MIN_PING_MS),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.so_reuseport", 0),
    ]


def connect(
    address: str, security: Security | None = None, *, max_message_mib: int = MAX_MESSAGE_MIB
) -> grpc.aio.Channel:
    """An asyncio channel to `HOST:PORT`; it connects on the first call.

    Raises:
        ValueError: the address is malformed, or plaintext would leave this machine.
    """
    security = security or Security()
    security.check(address)
    options = channel_options(max_message_mib)
    interceptors = _token_interceptors(security)
    credentials = security.credentials()
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options, interceptors=interceptors)
    if security.token is not None:
        call_credentials = grpc.access_token_call_credentials(security.token)
        credentials = grpc.composite_channel_credentials(credentials, call_credentials)
    return grpc.aio.secure_channel(address, credentials, options=options)


def connect_blocking(
    address: str, security: Security | None = None, *, max_message_mib: int = MAX_MESSAGE_MIB
) -> grpc.Channel:
    """The same for threads. Calls must carry `security.metadata` themselves.

    Raises:
        ValueError: as `connect`.
    """
    security = security or Security()
    security.check(address)
    options = channel_options(max_message_mib)
    credentials = security.credentials()
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


def _token_interceptors(security: Security) -> list[grpc.aio.ClientInterceptor]:
    """gRPC sends call credentials over TLS only; in plaintext the token is added here."""
    if security.token is None:
        return []
    add = _TokenAdder(security)
    return [_UnaryUnary(add), _UnaryStream(add), _StreamStream(add)]


class _TokenAdder:
    def __init__(self, security: Security) -> None:
        self._metadata = security.metadata

    def __call__(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *self._metadata)
        return grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _Adding:
    def __init__(self, add: _TokenAdder) -> None:
        self._add = add


class _UnaryUnary(_Adding, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await continuation(self._add(client_call_details), request)


class _UnaryStream(_Adding, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await continuation(self._add(client_call_details), request)


class _StreamStream(_Adding, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await continuation(self._add(client_call_details), request_iterator)
