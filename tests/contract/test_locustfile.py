"""The Locust user against an orchestrator that answers by rote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from loadtest import report
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


def run(address: str, folder: Path, *prompts: str) -> tuple[list[report.Sample], int]:
    """Samples and failures of two users within a second or so."""
    prompt_file, samples = folder / "prompts.jsonl", folder / "samples.json"
    prompt_file.write_text("".join(f'{{"prompt": "{prompt}"}}\n' for prompt in prompts))
    options = {
        "users": 2,
        "spawn-rate": 2,
        "run-time": "1s",
        "host": address,
        "exit-code-on-error": 0,
    }
    own = {
        "prompts": prompt_file,
        "samples": samples,
        "max-tokens": TOKENS,
        "method": "ngram",
        "k": 4,
    }
    flags = [
        part for name, value in {**options, **own}.items() for part in (f"--{name}", str(value))
    ]
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(LOCUSTFILE),
        "--headless",
        "--only-summary",
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "time to first token" in done.stdout + done.stderr
    return report.read_samples(samples)


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
        assert (sample.tokens, sample.method, sample.drafted, sample.accepted) == (
            TOKENS,
            "ngram",
            8,
            3,
        )
        assert 0 < sample.first_token_s <= sample.total_s


def test_refused_requests_are_counted_and_end_nothing(
    orchestrator: tuple[Rote, str], tmp_path: Path
) -> None:
    _, address = orchestrator
    samples, failures = run(address, tmp_path, "good", "refuse this")
    assert failures >= 1
    assert len(samples) >= 1
