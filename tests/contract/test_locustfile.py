"""The Locust user against an orchestrator that answers by rote."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from loadtest import report
from outrider.cli.processes import free_ports
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc

LOCUSTFILE = Path(report.__file__).parent / "locustfile.py"
TOKENS = 5


class Rote(orchestrator_pb2_grpc.OrchestratorServicer):
    """Streams the numbers from 0 on; refuses a prompt with the word "refuse" in it."""

    def __init__(self) -> None:
        self.requests: list[orchestrator_pb2.GenerateRequest] = []

    def Generate(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self.requests.append(request)
        if b"refuse" in request.prompt:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "prompt: refused")
        for token in range(request.max_tokens):
            kinds = [orchestrator_pb2.TOKEN_KIND_ACCEPTED]
            yield orchestrator_pb2.GenerateReply(token_ids=[token], kinds=kinds, text="x")
        spec = {
            "method": request.speculative.method,
            "rounds": 2,
            "drafted": 8,
            "accepted": 3,
            "emitted": 5,
        }
        summary = orchestrator_pb2.Summary(
            finish_reason=orchestrator_pb2.FINISH_REASON_LENGTH,
            usage=orchestrator_pb2.Usage(prompt_tokens=1, completion_tokens=request.max_tokens),
            speculation=orchestrator_pb2.SpeculationReport(**spec),
        )
        yield orchestrator_pb2.GenerateReply(summary=summary)


@pytest.fixture
def orchestrator() -> Iterator[tuple[Rote, str]]:
    server = grpc.server(ThreadPoolExecutor(4))
    rote = Rote()
    orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(rote, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield rote, f"127.0.0.1:{port}"
    server.stop(None).wait()


def command(prompt_file: Path, samples: Path, **options: object) -> list[str]:
    """A Locust process that reads these prompts."""
    own = {"prompts": prompt_file, "samples": samples, "max-tokens": TOKENS, "method": "ngram"}
    every = {**options, **own, "k": 4, "exit-code-on-error": 0}
    flags = [part for name, value in every.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *flags]


def write_prompts(path: Path, *prompts: str) -> Path:
    path.write_text("".join(f'{{"prompt": "{prompt}"}}\n' for prompt in prompts))
    return path


def run(address: str, folder: Path, *prompts: str) -> tuple[list[report.Sample], int]:
    """Samples and failures of two users within a second or so."""
    samples = folder / "samples.json"
    options = {"users": 2, "spawn-rate": 2, "run-time": "1s", "host": address}
    asked = command(write_prompts(folder / "prompts.jsonl", *prompts), samples, **options)
    asked += ["--headless", "--only-summary"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "time to first token" in done.stdout + done.stderr
    seen, failures = report.read_samples(samples)
    return seen, failures.total()


def test_two_users_ask_for_a_fixed_depth_and_report_what_they_saw(
    orchestrator: tuple[Rote, str], tmp_path: Path
) -> None:
    rote, address = orchestrator
    samples, failures = run(address, tmp_path, "one", "two")
    assert failures == 0
    assert len(samples) >= 2
    assert {request.prompt for request in rote.requests} == {b"one", b"two"}
    assert {
        (request.speculative.n_min, request.speculative.n_max) for request in rote.requests
    } == {(4, 4)}
    for sample in samples:
        told = sample.speculation
        assert (sample.tokens, told.method) == (TOKENS, "ngram")
        assert (told.drafted, told.accepted) == (8, 3)
        assert 0 < sample.first_token_s <= sample.total_s


def test_refused_requests_are_counted_and_end_nothing(
    orchestrator: tuple[Rote, str], tmp_path: Path
) -> None:
    _, address = orchestrator
    samples, failures = run(address, tmp_path, "good", "refuse this")
    assert failures >= 1
    assert len(samples) >= 1


def test_prompts_in_chat_format_are_sent_as_messages(
    orchestrator: tuple[Rote, str], tmp_path: Path
) -> None:
    rote, address = orchestrator
    file, samples = tmp_path / "chats.jsonl", tmp_path / "samples.json"
    file.write_text('{"question_id": 1, "category": "chat", "turns": ["good morning"]}\n')
    asked = command(file, samples, users=1, host=address)
    asked += ["--run-time", "1s", "--headless", "--only-summary"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {request.chat.messages[0].content for request in rote.requests} == {b"good morning"}
    assert not report.read_samples(samples)[1]


def test_a_master_adds_up_what_its_workers_saw(
    orchestrator: tuple[Rote, str], tmp_path: Path
) -> None:
    rote, address = orchestrator
    prompts = write_prompts(tmp_path / "prompts.jsonl", "good", "better", "refuse this")
    samples, [port] = tmp_path / "samples.json", free_ports(1)
    run_for = {"users": 4, "spawn-rate": 4, "run-time": "2s", "stop-timeout": 10}
    listen = {"master-bind-port": port, "expect-workers": 2, "csv": tmp_path / "stats"}
    asked = command(prompts, samples, host=address, **run_for, **listen)
    working = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--worker"]
    working += ["--master-port", str(port)]  # all else comes from the master
    with ExitStack() as stack:
        workers = [stack.enter_context(Background(working)) for _ in range(2)]
        asked += ["--master", "--headless", "--only-summary"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        assert [worker.wait(30) for worker in workers] == [0, 0]
    seen, errors = report.read_samples(samples)
    failures = errors.total()
    with (tmp_path / "stats_stats.csv").open(newline="") as file:
        entries = {row["Name"]: row for row in csv.DictReader(file)}
    assert len(seen) + failures == len(rote.requests)
    assert failures >= 2, "both workers met the prompt that is refused"
    for name in ("request", "Aggregated"):
        assert int(entries[name]["Request Count"]) == len(rote.requests), "custom entries are apart"
        assert int(entries[name]["Failure Count"]) == failures
    for name in ("time to first token", "time per output token", "acceptance rate %"):
        assert int(entries[name]["Request Count"]) == len(seen)
    rate = float(entries["acceptance rate %"]["Average Response Time"])
    assert rate == pytest.approx(100 * 3 / 8)
    first = sum(sample.first_token_s for sample in seen) / len(seen)
    assert float(entries["time to first token"]["Average Response Time"]) == pytest.approx(
        1e3 * first
    )


class Background(subprocess.Popen[bytes]):
    """A process that does not outlive its block."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
