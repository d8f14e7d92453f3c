"""Errors that a service answers with a status instead of a traceback.

ServiceError
 +-- InvalidArgument      bad input: names the field, the value and the limit
 +-- FailedPrecondition   a session is lost or stale
 +-- ResourceExhausted    full; says when to come back
 +-- Unavailable          loading, draining, or a peer cannot be reached
 +-- Unauthenticated      no token, or a wrong one
"""

from __future__ import annotations

import math
from typing import ClassVar

RETRY_AFTER_MS = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED: milliseconds after which a new try makes sense."""


class ServiceError(Exception):
    """Ends a call with the status `code` names; the message goes to the caller as it stands."""

    code: ClassVar[str] = "INTERNAL"

    @property
    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata sent with the status."""
        return ()


class InvalidArgument(ServiceError):
    """The input is bad, whatever the state of the service."""

    code = "INVALID_ARGUMENT"


class FailedPrecondition(ServiceError):
    """The session is lost or stale, or two sides do not fit."""

    code = "FAILED_PRECONDITION"


class ResourceExhausted(ServiceError):
    """The service is full.

    Args:
        message: names the limit.
        retry_after_s: seconds after which a new try makes sense.
    """

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    @property
    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """`retry-after-ms`, rounded up."""
        return ((RETRY_AFTER_MS, str(math.ceil(self.retry_after_s * 1000))),)


class Unavailable(ServiceError):
    """The service is loading or draining, or one that it needs cannot be reached."""

    code = "UNAVAILABLE"


class Unauthenticated(ServiceError):
    """The bearer token is missing or wrong."""

    code = "UNAUTHENTICATED"
