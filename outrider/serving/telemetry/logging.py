"""Logging of a service: one line a record on standard error."""

from __future__ import annotations

import logging
import time

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"


def configure(level: str) -> None:
    """Sends all records from `level` on to standard error; a second call replaces the first."""
    formatter = logging.Formatter(FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def flush() -> None:
    """Writes out what handlers still hold."""
    for handler in logging.getLogger().handlers:
        handler.flush()
