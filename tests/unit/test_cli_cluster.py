"""A cluster whose services are stand-ins: small programs in place of the real modules."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import redis

from outrider import Client, OutriderError
from outrider.cli.cluster import Cluster, is_healthy
from outrider.cli.environment import service_environment
from outrider.cli.processes import ChildDied, ClusterError, Processes
from outrider.drafting.specs import default_specs

STAND_IN = """
import asyncio, sys
sys.path.insert(0, {contract!r})
from fake_orchestrator import FakeOrchestrator
from outrider.serving.server import serve
from outrider.serving.settings import ServiceSettings
print("arguments", *sys.argv[1:], flush=True)
listen = sys.argv[sys.argv.index("--listen") + 1]
sys.exit(asyncio.run(serve(ServiceSettings(listen=listen, grace_s=1), FakeOrchestrator())))
"""
DYING = "import sys; sys.exit('cannot load: no such model')"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules that stand in for the services; children find them first."""
    folder = tmp_path / "modules"
    folder.mkdir()
    contract = str(Path(__file__).parents[1] / "contract")
    for name in ("target_service", "draft_service", "orchestrator"):
        (folder / f"{name}.py").write_text(STAND_IN.format(contract=contract))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)  # -m looks into the working directory before all else
    return folder


def cluster(tmp_path: Path, **changes: object) -> Cluster:
    return Cluster(
        **{"target": "tiny", "logs": tmp_path / "logs", "start_s": 60, "grace_s": 2, **changes}
    )  # type: ignore[arg-type]


def test_a_cluster_serves_and_leaves_nothing_behind(modules: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, drafters=["ngram", "draft_model=tiny"], dtype="float32") as running:
        with Client(running.address) as client:
            assert client.generate("hi").text == "abcdef"
        assert running.redis_url is not None
        with redis.Redis.from_url(running.redis_url) as store:
            assert store.ping()
        addresses = (running.address, running.target_address, running.draft_address)
        assert all(is_healthy(address) for address in addresses)
    assert not any(is_healthy(address) for address in addresses)
    with redis.Redis.from_url(running.redis_url) as store, pytest.raises(redis.ConnectionError):
        store.ping()
    logs = {
        name: (tmp_path / "logs" / f"{name}.log").read_text()
        for name in ("target", "draft", "orchestrator")
    }
    assert "--model tiny --dtype float32 --device cpu" in logs["target"]
    assert "--target tiny --drafter ngram --drafter draft_model=tiny" in logs["draft"]
    assert (
        f"--target {addresses[1]} --draft {addresses[2]} --tokenizer tiny" in logs["orchestrator"]
    )
    assert all("stopped" in log for log in logs.values()), "each has drained"


def test_a_service_that_cannot_start_ends_the_start_with_its_last_lines(
    modules: Path, tmp_path: Path
) -> None:
    (modules / "target_service.py").write_text(DYING)
    with pytest.raises(ChildDied, match="target died") as caught, cluster(tmp_path):
        pass
    assert "cannot load: no such model" in str(caught.value)


def test_a_service_that_dies_is_the_reason_behind_the_callers_error(
    modules: Path, tmp_path: Path
) -> None:

    def use() -> None:
        with cluster(tmp_path) as running:
            running.check()
            children = running._processes.children  # type: ignore[union-attr]
            victim = next(child for child in children if child.name == "orchestrator")
            victim.process.kill()
            victim.process.wait(10)
            with Client(running.address) as client:
                client.generate("hi", timeout=5)

    with pytest.raises(ChildDied, match="orchestrator died") as caught:
        use()
    assert isinstance(caught.value.__cause__, OutriderError)


def test_a_service_that_never_is_healthy_ends_the_start_in_time(
    modules: Path, tmp_path: Path
) -> None:
    (modules / "draft_service.py").write_text("import time; time.sleep(600)")
    with (
        pytest.raises(ClusterError, match="draft is not healthy within 6 s"),
        cluster(tmp_path, start_s=6),
    ):
        pass


def test_without_drafters_there_is_no_draft_service(modules: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, drafters=[]) as running, Client(running.address) as client:
        assert client.generate("hi").text == "abcdef"
        assert set(running.pids) == {"valkey", "target", "orchestrator"}
    log = (tmp_path / "logs" / "orchestrator.log").read_text()
    assert "--draft" not in log


def test_an_existing_redis_is_used_and_none_started(modules: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, redis_url="redis://127.0.0.1:1/0"):
        assert not (tmp_path / "logs" / "valkey.log").exists()
    assert (
        "--redis-url redis://127.0.0.1:1/0" in (tmp_path / "logs" / "orchestrator.log").read_text()
    )


def up(*arguments: str) -> subprocess.Popen[str]:
    """As from a terminal; background jobs of a shell, tests among them, begin without SIGINT."""
    code = (
        "import signal, typer; from outrider.cli.up import up; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); typer.run(up)"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_says_ready_on_one_line_and_drains_on_a_signal(
    modules: Path, tmp_path: Path, number: int
) -> None:
    with up("--target", "tiny", "--port", "0", "--logs", str(tmp_path)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready grpc=127.0.0.1:")
        address = line.strip().partition("=")[2]
        assert is_healthy(address)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert not is_healthy(address)
    assert "stopped" in (tmp_path / "orchestrator.log").read_text()


def test_up_ends_with_status_1_where_a_service_dies(modules: Path, tmp_path: Path) -> None:
    (modules / "draft_service.py").write_text(DYING)
    with up("--target", "tiny", "--port", "0", "--logs", str(tmp_path)) as process:
        out, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ready" not in out
    assert "draft died (exit status 1)" in error
    assert "cannot load: no such model" in error


def test_services_that_share_a_machine_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    chosen = service_environment(["ngram", "draft_model=/models/x"])
    alone = service_environment(["ngram", "lookahead"])
    assert int(chosen["GOMP_SPINCOUNT"]) < int(alone["GOMP_SPINCOUNT"]) < 1_000_000
    assert chosen["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert service_environment(["ngram"])["OMP_NUM_THREADS"] == "1", "what the user has set stands"


def test_port_of_another_server_is_refused_before_anything_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port: {port} cannot be used"), Cluster(port=port):
            pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drafters": ["magic"]}, "drafter 'magic' is unknown, limit one of ngram, draft_model"),
        ({"drafters": ["ngram", "ngram"]}, "ngram, ngram: each may come once"),
        ({"drafters": ["draft_model"]}, "drafter draft_model needs a path (draft_model=PATH)"),
        ({"target": "/no/such"}, "model '/no/such': there is no such directory or file"),
        ({"drafters": ["draft_model=/no/such"]}, "model '/no/such': there is no such directory"),
        ({"dtype": "f16"}, "dtype: 'f16': Input should be 'auto', 'float32', 'bfloat16' or 'int8'"),
        ({"device": "tpu"}, "device: 'tpu': String should match pattern"),
        ({"device": "cuda:99"}, "device 'cuda:99': this machine has"),
    ],
)
def test_what_a_service_would_refuse_is_refused_before_anything_starts(
    changes: dict[str, object], message: str, modules: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)), cluster(tmp_path, **changes):
        pass
    assert not (tmp_path / "logs").exists()


def test_a_target_without_drafters_of_its_own_gets_those_that_need_no_path() -> None:
    assert Cluster(target="tiny").drafters == ("ngram", "lookahead")
    assert Cluster().drafters == default_specs("default")
    assert set(Cluster().drafters) >= {"ngram", "draft_model", "lookahead"}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary ones are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_temporary_logs_go_with_a_clean_end(modules: Path, tmp_path: Path, temporary: Path) -> None:
    with cluster(tmp_path, logs=None):
        assert list(temporary.iterdir())
    assert not list(temporary.iterdir())


def test_temporary_logs_go_with_a_start_that_fails_before_any_service(
    modules: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise ClusterError("no server")

    monkeypatch.setattr("outrider.cli.cluster.get_binary_path", missing)
    with pytest.raises(ClusterError, match="no server"), cluster(tmp_path, logs=None):
        pass
    assert not list(temporary.iterdir())


def test_temporary_logs_go_where_the_drain_is_cut_short(
    modules: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Processes.stop

    def interrupted(self: Processes, *arguments: Any) -> None:
        stop(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt), cluster(tmp_path, logs=None):
        pass
    assert not list(temporary.iterdir())


def test_temporary_logs_are_kept_and_named_where_a_service_failed(
    modules: Path, tmp_path: Path, temporary: Path
) -> None:
    (modules / "target_service.py").write_text(DYING)
    said: list[str] = []
    with pytest.raises(ChildDied), cluster(tmp_path, logs=None, say=said.append):
        pass
    [folder] = temporary.iterdir()
    assert "no such model" in (folder / "target.log").read_text()
    assert said[-1] == f"logs are in {folder}"
