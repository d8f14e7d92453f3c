"""Texts that run side by side through a cluster, each recorded as its tokens arrive."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from benchmarks.arrivals import Arrivals
from outrider import Client


@dataclass(frozen=True)
class Asked:
    """What a stream asks for: greedy, EOS ignored.

    Args:
        prompt_ids: of its prompt.
        tokens: that it generates.
        speculative: the request's block; `{"n_max": 0}` is plain.
    """

    prompt_ids: Sequence[int]
    tokens: int
    speculative: dict[str, Any] = field(default_factory=lambda: {"n_max": 0})


def record(
    client: Client, asked: Asked, after: int = 0, reached: threading.Event | None = None
) -> Arrivals:
    """Arrivals of one text; `reached` is set once `after` tokens are there, or when it ends."""
    arrivals = Arrivals.begin()
    try:
        for chunk in client.stream(
            prompt_token_ids=asked.prompt_ids,
            max_tokens=asked.tokens,
            temperature=0.0,
            ignore_eos=True,
            speculative=asked.speculative,
        ):
            arrivals.add(chunk.token_ids)
            if reached is not None and len(arrivals.ids) >= after:
                reached.set()
    finally:
        if reached is not None:
            reached.set()
    return arrivals


class Running:
    """Streams in threads of their own, from the start of the block to its end.

    Args:
        address: of the orchestrator.
        asked: one a stream.
        after: tokens that `wait` waits for.
    """

    def __init__(self, address: str, asked: Sequence[Asked], after: int = 1) -> None:
        self._client = Client(address)
        self._asked = asked
        self._after = after
        self._reached = [threading.Event() for _ in asked]
        self._pool = ThreadPoolExecutor(max(len(asked), 1))
        self._futures: list[Future[Arrivals]] = []

    def __enter__(self) -> Running:
        self._futures = [
            self._pool.submit(record, self._client, asked, self._after, reached)
            for asked, reached in zip(self._asked, self._reached, strict=True)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)
        self._client.close()

    def wait(self) -> None:
        """Until every stream has its first `after` tokens."""
        for reached in self._reached:
            reached.wait()

    def results(self) -> list[Arrivals]:
        """The streams' arrivals, once all have ended; raises what one of them raised."""
        return [future.result() for future in self._futures]
