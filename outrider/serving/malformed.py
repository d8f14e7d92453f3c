"""Messages that are none: bytes which protobuf cannot read become a status that says so.

gRPC would answer UNKNOWN or INTERNAL and log a traceback; the caller is at fault, not the service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from outrider.serving.errors import InvalidArgument


@dataclass(frozen=True)
class Malformed:
    """Stands for a message that could not be read."""

    reason: str


def lenient(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """The deserializer (None: bytes as they are), which gives a `Malformed` instead of raising."""

    def read(data: bytes) -> Any:
        try:
            return data if deserialize is None else deserialize(data)
        except DecodeError as error:
            return Malformed(str(error))

    return read


def checked(message: Any) -> Any:
    """The message.

    Raises:
        InvalidArgument: it could not be read.
    """
    if isinstance(message, Malformed):
        raise InvalidArgument(f"message: {message.reason}")
    return message


async def checked_stream(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The messages of a stream up to the first unreadable one, which raises InvalidArgument."""
    async for message in messages:
        yield checked(message)
