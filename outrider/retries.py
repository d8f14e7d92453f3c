"""When a call is tried again.

UNAVAILABLE only, never behind the first token, with bounded backoff.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import grpc

from outrider.exceptions import DeadlineExceeded, from_rpc_error


@dataclass(frozen=True)
class Retry:
    """attempts in all.

    Waits double from first_wait_s up to most_wait_s, less up to half at random.
    """

    attempts: int = 4
    first_wait_s: float = 0.1
    most_wait_s: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts}, limit at least 1")

    def wait_s(self, failures: int) -> float:
        """Seconds to wait behind so many failures.

        At random, so that callers do not come back at once.
        """
        longest = min(self.first_wait_s * 2.0 ** (failures - 1), self.most_wait_s)
        return longest * random.uniform(0.5, 1.0)


_CLOCKS_S = 0.05
"""How much earlier than ours gRPC's clock may find a deadline passed."""


class Attempts:
    """The attempts of one call, which share its deadline."""

    def __init__(self, retry: Retry, timeout_s: float) -> None:
        self._retry = retry
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._failures = 0

    def time_left_s(self) -> float:
        """Deadline of the next attempt.

        Raises:
            DeadlineExceeded: there is none left.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._too_late()
        return left

    def wait_s(self, error: grpc.RpcError, *, begun: bool) -> float:
        """Seconds to wait before the next attempt.

        Args:
            error: how the attempt ended.
            begun: whether anything had arrived.

        Raises:
            OutriderError: there is no next attempt.
        """
        self._failures += 1
        raised = from_rpc_error(error)
        over = time.monotonic() >= self._deadline - _CLOCKS_S
        if isinstance(raised, DeadlineExceeded) and over:
            raise self._too_late(raised.code) from error  # gRPC's own words lack the limit
        if (
            begun
            or raised.code is not grpc.StatusCode.UNAVAILABLE
            or self._failures >= self._retry.attempts
        ):
            raise raised from error
        wait = self._retry.wait_s(self._failures)
        if time.monotonic() + wait >= self._deadline:
            raise raised from error
        return wait

    def _too_late(self, code: grpc.StatusCode | None = None) -> DeadlineExceeded:
        return DeadlineExceeded(f"timeout: not done within {self._timeout_s:g} s", code)
