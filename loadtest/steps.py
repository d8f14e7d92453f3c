"""A step of the load: one user, many, one again; what K did meanwhile, and every arrival.

K is read from the orchestrator's Prometheus endpoint, ten times a second: `outrider_draft_depth` is
a histogram of the depths that rounds asked for and of chunks of free runs, which count as 0.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.arrivals import Arrivals
from outrider import Client

DEPTH = "outrider_draft_depth"
POLL_S, TIMEOUT_S = 0.1, 5.0
END_S = 60.0


@dataclass(frozen=True)
class Depths:
    """Choices of K so far: `at` on the clock of perf_counter, how many, and the sum of their K."""

    at: float
    count: float
    total: float


@dataclass(frozen=True)
class Step:
    """What was seen; times on the clock of perf_counter.

    began, up, down, ended: of the whole, and of the time with many users.
    """

    began: float
    up: float
    down: float
    ended: float
    depths: Sequence[Depths]
    texts: Sequence[Arrivals]


@dataclass
class User:
    """A thread that reads one text after the other until it is told to leave."""

    address: str
    prompts: Sequence[Sequence[int]]
    options: Mapping[str, Any]
    texts: list[Arrivals] = field(default_factory=list)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def leave(self) -> None:
        """Cancels what is running at the next arrival; returns at once."""
        self._left.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        self._thread.join(END_S)
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            with Client(self.address) as client:
                for prompt in cycle(self.prompts):
                    if self._left.is_set():
                        return
                    self._read(client, prompt)
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self.error = error

    def _read(self, client: Client, prompt: Sequence[int]) -> None:
        text = Arrivals.begin()
        self.texts.append(text)
        stream = client.stream(prompt_token_ids=prompt, **self.options)
        try:
            for chunk in stream:
                text.add(chunk.token_ids)
                if self._left.is_set():
                    return
        finally:
            stream.close()


def watch(url: str, seen: list[Depths], done: threading.Event) -> None:
    """Reads the histogram until `done`."""
    while not done.wait(POLL_S):
        seen.append(read_depths(url))


def read_depths(url: str) -> Depths:
    """One reading.

    Raises:
        OSError: the endpoint does not answer.
    """
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:  # noqa: S310 - our own cluster
        text = reply.read().decode()
    at, sums = time.perf_counter(), {"_count": 0.0, "_sum": 0.0}
    for family in text_string_to_metric_families(text):
        if family.name == DEPTH:
            for sample in family.samples:
                ending = sample.name.removeprefix(DEPTH)
                if ending in sums:
                    sums[ending] += sample.value
    return Depths(at, sums["_count"], sums["_sum"])


def take_step(
    user: Callable[[int], User], crowd: int, phases_s: tuple[float, float, float], url: str
) -> Step:
    """One user for phases_s[0], `crowd` of them for phases_s[1], one for phases_s[2] seconds.

    Args:
        user: makes the user of that number.
        url: of the orchestrator's metrics.
    """
    alone, crowded, again = phases_s
    depths: list[Depths] = []
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(url, depths, done), daemon=True)
    users = [user(number) for number in range(crowd)]
    with ExitStack() as stack:
        stack.callback(watcher.join, END_S)
        stack.callback(done.set)
        watcher.start()
        began = time.perf_counter()
        stack.enter_context(users[0])
        time.sleep(alone)
        up = time.perf_counter()
        for other in users[1:]:
            stack.enter_context(other)
        time.sleep(crowded)
        down = time.perf_counter()
        for other in users[1:]:
            other.leave()
        time.sleep(again)
        ended = time.perf_counter()
    texts = [text for each in users for text in each.texts]
    return Step(began, up, down, ended, depths, texts)
