"""The compose cluster from outside. scripts/test-compose.sh brings it up and takes it down."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider import Client
from tests import prompts

ADDRESS = os.environ.get("OUTRIDER_COMPOSE_ADDRESS", "")
COMPOSE = shlex.split(os.environ.get("OUTRIDER_COMPOSE", "docker-compose"))
TOKENS = 24
K = 4
SCALE_S = 240.0
SESSIONS_TOTAL = """
import grpc
from outrider.v1 import draft_pb2, draft_pb2_grpc
channel = grpc.insecure_channel("127.0.0.1:50052")
stub = draft_pb2_grpc.DraftStub(channel)
print(stub.GetInfo(draft_pb2.DraftInfoRequest(), timeout=10).sessions_total)
"""

pytestmark = [
    pytest.mark.compose,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not ADDRESS, reason="run by make test-compose"),
]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(ADDRESS) as client:
        yield client


@pytest.mark.parametrize("method", ["draft_model", "ngram"])
def test_text_with_speculation_is_the_text_without(client: Client, method: str) -> None:
    drafted = 0
    for prompt in prompts.interleaved(4):
        plain = client.generate(
            prompt.prompt, max_tokens=TOKENS, temperature=0.0, speculative={"n_max": 0}
        )
        spec = {"method": method, "n_max": K, "n_min": K}
        result = client.generate(
            prompt.prompt, max_tokens=TOKENS, temperature=0.0, speculative=spec
        )
        assert result.token_ids == plain.token_ids
        assert result.text == plain.text
        assert plain.speculation.drafted == 0
        drafted += result.speculation.drafted
    assert drafted > 0


def test_both_of_two_draft_replicas_serve_sessions(client: Client) -> None:
    compose("up", "-d", "--no-recreate", "--scale", "draft=2", "draft")
    replicas = compose("ps", "-q", "draft").split()
    assert len(replicas) == 2
    deadline = time.monotonic() + SCALE_S
    while not all(is_healthy(replica) for replica in replicas):
        assert time.monotonic() < deadline, f"a draft replica is not healthy after {SCALE_S} s"
        time.sleep(1)
    before = [sessions_total(replica) for replica in replicas]
    # Until the orchestrator looks the name up again it knows the old replica only.
    while any(now <= then for now, then in zip(counts(replicas), before, strict=True)):
        assert time.monotonic() < deadline, (
            f"sessions went from {before} to {counts(replicas)} only"
        )
        with ThreadPoolExecutor(4) as pool:
            texts = {result.text for result in pool.map(lambda _: draft_with(client), range(4))}
        assert len(texts) == 1


def draft_with(client: Client):  # type: ignore[no-untyped-def]
    spec = {"method": "draft_model", "n_max": K, "n_min": K}
    return client.generate("The harbour was", max_tokens=8, temperature=0.0, speculative=spec)


def counts(replicas: list[str]) -> list[int]:
    return [sessions_total(replica) for replica in replicas]


def sessions_total(replica: str) -> int:
    """Sessions opened since the start, by the replica's own count."""
    return int(run("docker", "exec", replica, "python", "-c", SESSIONS_TOTAL))


def is_healthy(replica: str) -> bool:
    return (
        run("docker", "inspect", "--format", "{{.State.Health.Status}}", replica).strip()
        == "healthy"
    )


def compose(*args: str) -> str:
    return run(*COMPOSE, *args)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCALE_S, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
    return done.stdout
