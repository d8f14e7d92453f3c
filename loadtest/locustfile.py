"""A Locust user over the SDK's gRPC: one prompt after the other, each answer read token by token.

    locust -f loadtest/locustfile.py --headless --users 8 --spawn-rate 8 --run-time 1m --host
    127.0.0.1:50050

Besides the whole request it reports, as entries of Locust's own statistics, the time to the first
token and the time per output token (milliseconds) and the acceptance rate (per cent, in the column
of response times).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.experimental.gevent as grpc_gevent
from locust import User, constant, events, task
from locust.env import Environment

from loadtest.report import Sample, write_samples
from outrider import Client, OutriderError
from outrider.cli import prompts

PROMPTS = Path(__file__).parent.parent / "tests" / "prompts"

# gRPC's own threads would block gevent's one; Locust has patched the rest on import.
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
        "--k", type=int, default=-1, help="fixed depth; 0 is off, -1 is the drafter's own"
    )
    parser.add_argument(
        "--samples", default="", help="file that gets every request's figures (JSON)"
    )


@events.init.add_listener  # type: ignore[untyped-decorator]
def start_recording(environment: Environment, **_: Any) -> None:
    """Gives the run its prompts and its list of samples."""
    Reader.recorder = Recorder(environment)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def store(environment: Environment, **_: Any) -> None:
    """Writes the samples where they were asked for."""
    options = environment.parsed_options
    if options is not None and options.samples:
        write_samples(Path(options.samples), Reader.recorder.samples, Reader.recorder.failures)


class Recorder:
    """What the users of one run share: prompts in a fixed order, and what they saw."""

    def __init__(self, environment: Environment) -> None:
        self._fire: Callable[..., None] = environment.events.request.fire
        options = environment.parsed_options
        self.prompts = itertools.cycle(read_prompts(Path(options.prompts if options else PROMPTS)))
        self.samples: list[Sample] = []
        self.failures = 0

    def succeeded(self, sample: Sample) -> None:
        """Books one answer."""
        self.samples.append(sample)
        self._report("request", sample.total_s * 1e3, sample.tokens)
        self._report("time to first token", sample.first_token_s * 1e3, 1)
        if sample.per_token_s is not None:
            self._report("time per output token", sample.per_token_s * 1e3, sample.tokens)
        if sample.drafted:
            self._report(
                "acceptance rate %", 100 * sample.accepted / sample.drafted, sample.drafted
            )

    def failed(self, error: OutriderError, total_s: float) -> None:
        """Books one error."""
        self.failures += 1
        self._report("request", total_s * 1e3, 0, error)

    def _report(
        self, name: str, value: float, length: int, error: OutriderError | None = None
    ) -> None:
        self._fire(
            request_type="grpc",
            name=name,
            response_time=value,
            response_length=length,
            exception=error,
            context={},
        )


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
            "speculative": speculative(options.method, options.k),
        }

    def on_stop(self) -> None:
        """Closes it."""
        self.client.close()

    @task
    def read(self) -> None:
        """One request."""
        prompt = next(self.recorder.prompts)
        started = time.perf_counter()
        try:
            sample = self._read(prompt, started)
        except OutriderError as error:
            self.recorder.failed(error, time.perf_counter() - started)
        else:
            self.recorder.succeeded(sample)

    def _read(self, prompt: str, started: float) -> Sample:
        first: float | None = None
        tokens = 0
        report = None
        for chunk in self.client.stream(prompt, **self.parameters):
            tokens += len(chunk.token_ids)
            if first is None and tokens:
                first = time.perf_counter()
            report = chunk.result.speculation if chunk.result else None
        total_s = time.perf_counter() - started
        return Sample(
            started=started,
            total_s=total_s,
            first_token_s=total_s if first is None else first - started,
            tokens=tokens,
            method=report.method if report else "",
            rounds=report.rounds if report else 0,
            drafted=report.drafted if report else 0,
            accepted=report.accepted if report else 0,
            emitted=report.emitted if report else 0,
        )


def speculative(method: str, k: int) -> dict[str, Any]:
    """The request's block: a fixed depth where k is 0 or more."""
    block: dict[str, Any] = {"method": method} if method and k != 0 else {}
    return block if k < 0 else {**block, "n_max": k, "n_min": k}


def read_prompts(path: Path) -> list[str]:
    """Texts of a prompt file, or of all `*.jsonl` in a folder, taken from the files in turn.

    Raises:
        ValueError: there are none, or a line is bad.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    columns = [[prompt.text for prompt in prompts.read_prompts(file)] for file in files]
    texts = [text for row in itertools.zip_longest(*columns) for text in row if text is not None]
    if not texts:
        raise ValueError(f"prompts: {path} has none")
    return texts
