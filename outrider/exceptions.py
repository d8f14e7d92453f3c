"""What a call of the SDK raises.

OutriderError
 +-- InvalidRequest       the request is bad: the message names field, value and limit
 |                        (also a ValueError)
 +-- Unauthenticated      no bearer token, or one that is not accepted
 +-- FailedPrecondition   the server's state does not fit the request
 +-- ResourceExhausted    full, or a message over the size limit; has `retry_after_s`
 +-- Unavailable          not reachable, loading or draining, and still so after the retries
 +-- DeadlineExceeded     not done within `timeout` (also a TimeoutError)
 +-- Cancelled            the call was cancelled, by whichever side
 +-- NotSupported         the server does not know the call: it is no orchestrator
 +-- ServerError          a fault of the server, or a reply that breaks the contract
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import grpc

from outrider.serving.errors import RETRY_AFTER_MS


class OutriderError(Exception):
    """Base of all; `code` is the gRPC status, None where the client itself refused."""

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class InvalidRequest(OutriderError, ValueError):
    """The request is bad: the message names field, value and limit."""


class Unauthenticated(OutriderError):
    """No bearer token, or one that is not accepted."""


class FailedPrecondition(OutriderError):
    """The server's state does not fit the request."""


class ResourceExhausted(OutriderError):
    """Full, or a message over the size limit.

    retry_after_s: seconds after which a new try makes sense; None where the same request fails
        again.
    """

    retry_after_s: float | None = None


class Unavailable(OutriderError):
    """Not reachable, loading or draining, and still so after the retries."""


class DeadlineExceeded(OutriderError, TimeoutError):
    """Not done within `timeout`."""


class Cancelled(OutriderError):
    """The call was cancelled, by whichever side."""


class NotSupported(OutriderError):
    """The server does not know the call: it is no orchestrator."""


class ServerError(OutriderError):
    """A fault of the server, or a reply that breaks the contract."""


EXCEPTIONS: dict[grpc.StatusCode, type[OutriderError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: InvalidRequest,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Unauthenticated,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ALREADY_EXISTS: FailedPrecondition,
    grpc.StatusCode.ABORTED: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
    grpc.StatusCode.INTERNAL: ServerError,
    grpc.StatusCode.UNKNOWN: ServerError,
    grpc.StatusCode.DATA_LOSS: ServerError,
}


class _Status(Protocol):
    """What errors of sync and asyncio calls have in common."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def from_rpc_error(error: grpc.RpcError) -> OutriderError:
    """The exception for a call that ended with a status."""
    status = cast(_Status, error)
    code = status.code()
    text = status.details() or code.name
    if code is grpc.StatusCode.UNIMPLEMENTED:
        text = f"an orchestrator is needed, and another kind of service answered: {text}"
    raised = EXCEPTIONS[code](text, code)
    if isinstance(raised, ResourceExhausted):
        for key, value in status.trailing_metadata() or ():
            if key == RETRY_AFTER_MS:
                raised.retry_after_s = int(value) / 1000
    return raised
