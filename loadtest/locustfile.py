"""A Locust user over the SDK's gRPC: one prompt after the other, each answer read token by token.

    locust -f loadtest/locustfile.py --host 127.0.0.1:50050        # web UI on port 8089
    locust -f loadtest/locustfile.py --headless --users 8 --spawn-rate 8 --run-time 1m --host ...
    locust -f loadtest/locustfile.py --master --host ... ; locust -f loadtest/locustfile.py --worker

Besides the whole request it reports, as entries of Locust's own statistics, the time to the first
token and the time per output token (milliseconds) and the acceptance rate (per cent, in the column
of response times). Only requests count in Locust's row of totals, so its requests a second and
failures are those of requests. Every entry is one value a request: Locust adds them up over
workers, and its average is the mean over requests. Acceptance pooled over tokens comes from the
samples (`--samples`), which workers send to the master and the master writes. Where a test is
stopped, running requests may end (`--stop-timeout`, default 10 s).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc.experimental.gevent as grpc_gevent
from gevent import get_hub
from locust import User, constant, events, task
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtest.grid import PROMPTS
from loadtest.report import NO_SPECULATION, Sample, write_samples
from outrider import Client, OutriderError
from outrider.cli import prompts
from outrider.cli.door import speculative
from outrider.cli.prompts import Prompt
from outrider.results import Chunk

THREADS = 512
STOP_S = 10.0  # Locust's workers are ready for the next test this long after a stop

# gRPC's own threads would block gevent's one; Locust has patched the rest on import. Under gevent
# every call and channel that waits takes a thread of this pool: with its ten, users would queue.
get_hub().threadpool.maxsize = THREADS
grpc_gevent.init_gevent()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def add_options(parser: argparse.ArgumentParser) -> None:
    """Options besides Locust's own."""
    parser.add_argument(
        "--prompts", default=str(PROMPTS), help="JSONL file as bench takes, or a folder"
    )
    parser.add_argument("--max-tokens", type=int, default=48, help="tokens per request")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--method", default="", help="drafter; the server's choice without it")
    parser.add_argument(
        "--k", type=int, default=-1, help="fixed depth; 0 is off, -1 leaves it to the controller"
    )
    parser.add_argument(
        "--samples",
        default="",
        include_in_web_ui=False,
        help="file that gets every request's figures (JSON)",
    )


@events.init.add_listener  # type: ignore[untyped-decorator]
def start_recording(environment: Environment, **_: Any) -> None:
    """Gives the process its list of samples, and requests the time to end.

    Without a --stop-timeout Locust kills its users within gRPC's calls: what they saw is lost.
    """
    Reader.recorder = Recorder(environment)
    environment.stop_timeout = environment.stop_timeout or STOP_S


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def start_test(environment: Environment, **_: Any) -> None:
    """Every test starts with the first prompt and without samples."""
    Reader.recorder.start()


@events.report_to_master.add_listener  # type: ignore[untyped-decorator]
def send_samples(client_id: str, data: dict[str, Any], **_: Any) -> None:
    """What a worker saw since its last report."""
    recorder = Reader.recorder
    data["samples"] = [asdict(sample) for sample in recorder.samples]
    data["failures"] = dict(recorder.failures)
    recorder.samples, recorder.failures = [], Counter()


@events.worker_report.add_listener  # type: ignore[untyped-decorator]
def take_samples(client_id: str, data: dict[str, Any], **_: Any) -> None:
    """The same, at the master."""
    Reader.recorder.samples += [Sample.from_json(sample) for sample in data["samples"]]
    Reader.recorder.failures += Counter(data["failures"])


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def store(environment: Environment, **_: Any) -> None:
    """Writes the samples where they were asked for; a worker has sent its own."""
    options = environment.parsed_options
    if options is not None and options.samples and not isinstance(environment.runner, WorkerRunner):
        write_samples(Path(options.samples), Reader.recorder.samples, Reader.recorder.failures)


class Recorder:
    """What the users of one process share: prompts in a fixed order, and what they saw."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._fire: Callable[..., None] = environment.events.request.fire
        self.prompts: Iterator[Prompt] = iter(())
        self.samples: list[Sample] = []
        self.failures: Counter[str] = Counter()

    def start(self) -> None:
        """Begins anew."""
        options = self._environment.parsed_options
        self.prompts = itertools.cycle(read_prompts(Path(options.prompts if options else PROMPTS)))
        self.samples, self.failures = [], Counter()

    def succeeded(self, sample: Sample) -> None:
        """Books one answer."""
        self.samples.append(sample)
        self._request(sample.total_s, sample.tokens)
        self._entry("time to first token", sample.first_token_s * 1e3, 1)
        if sample.per_token_s is not None:
            self._entry("time per output token", sample.per_token_s * 1e3, sample.tokens)
        told = sample.speculation
        if told.drafted:
            self._entry("acceptance rate %", 100 * told.acceptance_rate, told.drafted)

    def failed(self, error: OutriderError, total_s: float) -> None:
        """Books one error."""
        self.failures[f"{type(error).__name__}: {error}"] += 1
        self._request(total_s, 0, error)

    def _request(self, total_s: float, tokens: int, error: OutriderError | None = None) -> None:
        self._fire(
            request_type="grpc",
            name="request",
            response_time=total_s * 1e3,
            response_length=tokens,
            exception=error,
            context={},
        )

    def _entry(self, name: str, value: float, length: int) -> None:
        # Not by the event of requests, which would count it as a request in the row of totals.
        self._environment.stats.get(name, "grpc").log(value, length)  # type: ignore[arg-type]


class Reader(User):
    """Asks again as soon as the answer is complete."""

    wait_time = constant(0)
    recorder: Recorder

    def on_start(self) -> None:
        """Every user has a connection of its own."""
        options = self.environment.parsed_options
        self.client = Client(self.host or "127.0.0.1:50050")
        self.parameters: dict[str, Any] = {
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "speculative": speculative(
                options.method or None, options.k if options.k >= 0 else None
            ),
        }

    def on_stop(self) -> None:
        """Closes it."""
        self.client.close()

    @task
    def read(self) -> None:
        """One request."""
        prompt = next(self.recorder.prompts)
        began, started = time.time(), time.perf_counter()
        try:
            sample = self._read(prompt, began, started)
        except OutriderError as error:
            self.recorder.failed(error, time.perf_counter() - started)
        else:
            self.recorder.succeeded(sample)

    def _read(self, prompt: Prompt, began: float, started: float) -> Sample:
        first: float | None = None
        tokens = 0
        result = None
        for chunk in self._stream(prompt):
            tokens += len(chunk.token_ids)
            if first is None and tokens:
                first = time.perf_counter()
            result = chunk.result
        total_s = time.perf_counter() - started
        return Sample(
            started=began,
            total_s=total_s,
            first_token_s=total_s if first is None else first - started,
            tokens=tokens,
            speculation=(result.speculation if result else None) or NO_SPECULATION,
        )

    def _stream(self, prompt: Prompt) -> Iterator[Chunk]:
        if prompt.chat:
            messages = [{"role": "user", "content": prompt.text}]
            return self.client.stream_chat(messages, **self.parameters)
        return self.client.stream(prompt.text, **self.parameters)


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts of a file, or of all `*.jsonl` in a folder, taken from the files in turn.

    Raises:
        ValueError: there are none, or a line is bad.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    columns = [prompts.read_prompts(file) for file in files]
    found = [one for row in itertools.zip_longest(*columns) for one in row if one is not None]
    if not found:
        raise ValueError(f"prompts: {path} has none")
    return found
