"""Outrider: lossless speculative decoding as a distributed service.

The names of the SDK are loaded on first use, so that importing a part of the package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.client import AsyncClient, Client
    from outrider.exceptions import (
        Cancelled,
        DeadlineExceeded,
        FailedPrecondition,
        InvalidRequest,
        NotSupported,
        OutriderError,
        ResourceExhausted,
        ServerError,
        Unauthenticated,
        Unavailable,
    )
    from outrider.results import Chunk, GenerationResult, ServerInfo, Speculation, Timings, Usage
    from outrider.retries import Retry

    __version__: str

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Chunk",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "GenerationResult",
    "InvalidRequest",
    "NotSupported",
    "OutriderError",
    "ResourceExhausted",
    "Retry",
    "ServerError",
    "ServerInfo",
    "Speculation",
    "Timings",
    "Unauthenticated",
    "Unavailable",
    "Usage",
    "__version__",
]

_HOMES = {
    "outrider.client": ("AsyncClient", "Client"),
    "outrider.results": (
        "Chunk",
        "GenerationResult",
        "ServerInfo",
        "Speculation",
        "Timings",
        "Usage",
    ),
    "outrider.retries": ("Retry",),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("outrider")
    if name not in __all__:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "outrider.exceptions")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
