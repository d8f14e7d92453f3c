"""What stands between gRPC and every handler: the token check, and errors turned into statuses."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from outrider.serving.auth import token_matches
from outrider.serving.errors import ServiceError
from outrider.serving.malformed import checked, checked_stream, lenient

logger = logging.getLogger(__name__)

MESSAGE_CHARS = 600
HEALTH = "/grpc.health.v1.Health/"
# Strings, because grpc's classes are generic for type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """A ServiceError ends the call with its code and message; anything unforeseen with INTERNAL.

    The traceback of the unforeseen goes to the log and never to the caller. Aborts and
    cancellations pass. A call that the server does not know ends with what it is instead.
    """

    def __init__(self, served: str) -> None:
        self._served = served

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Wraps the handler of the call, if there is one."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            # Streaming on both sides fits every kind of call, none of whose messages is read.
            return grpc.stream_stream_rpc_method_handler(_unknown(method, self._served))
        read = lenient(handler.request_deserializer)
        if handler.response_streaming:
            streaming = _wrap_stream(handler.stream_stream or handler.unary_stream, method)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(streaming, read, handler.response_serializer)
        single = _wrap_single(handler.stream_unary or handler.unary_unary, method)
        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(single, read, handler.response_serializer)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls without the bearer token, health checks apart.

    Those who probe hold no secrets.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        # Streaming on both sides, so that the refusal does not wait for a message of the caller.
        self._refusal: Handler = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Lets the call through, or puts the refusal in its place."""
        exempt = handler_call_details.method.startswith(HEALTH)
        if exempt or token_matches(handler_call_details.invocation_metadata, self._token):
            return await continuation(handler_call_details)
        return self._refusal


async def _refuse(_requests: Any, context: Context) -> AsyncIterator[Any]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authorization: no valid bearer token")
    yield  # never reached; makes this a streaming handler


def _unknown(method: str, served: str) -> Any:
    service, _, name = method.removeprefix("/").rpartition("/")
    text = f"{service}.{name} is not served here: this is {served}"

    async def refuse(_requests: Any, context: Context) -> AsyncIterator[Any]:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
        yield  # never reached; makes this a streaming handler

    return refuse


def _wrap_single(handle: Any, method: str) -> Any:
    async def wrapped(request: Any, context: Context) -> Any:
        async with _statuses(context, method):
            return await handle(_checked(request), context)

    return wrapped


def _wrap_stream(handle: Any, method: str) -> Any:
    async def wrapped(request: Any, context: Context) -> AsyncIterator[Any]:
        async with _statuses(context, method):
            replies = handle(_checked(request), context)
            if inspect.isawaitable(replies):  # a handler that uses context.write
                await replies
                return
            async with aclosing(replies):
                async for reply in replies:
                    yield reply

    return wrapped


def _checked(request: Any) -> Any:
    return checked_stream(request) if hasattr(request, "__aiter__") else checked(request)


@asynccontextmanager
async def _statuses(context: Context, method: str) -> AsyncIterator[None]:
    try:
        yield
    except (grpc.aio.AbortError, asyncio.CancelledError, GeneratorExit):
        raise
    except ServiceError as error:
        await _abort(context, error)
    except Exception:
        logger.exception("%s failed", method)
        await context.abort(grpc.StatusCode.INTERNAL, "internal error")


async def _abort(context: Context, error: ServiceError) -> NoReturn:
    text = str(error)
    if (
        len(text) > MESSAGE_CHARS
    ):  # gRPC drops a status whose message is larger than a header may be
        text = f"{text[: MESSAGE_CHARS // 2]} ... {text[-MESSAGE_CHARS // 3 :]}"
    await context.abort(grpc.StatusCode[error.code], text, error.trailing_metadata)
    raise AssertionError("abort returns never")
