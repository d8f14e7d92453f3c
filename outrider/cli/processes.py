"""Child processes that are watched, logged, stopped in order, and never outlive their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from outrider.cli import tether

TAIL_LINES = 20
POLL_S = 0.05


class ClusterError(Exception):
    """The cluster cannot go on; the message is for the user."""


class ChildDied(ClusterError):
    """A child ended by itself; the message has its last log lines."""


@dataclass(frozen=True)
class Child:
    """A running child and where its output goes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """Its last log lines."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def death(self) -> ChildDied | None:
        """How it ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return ChildDied(f"{self.name} died ({how}); the last lines of {self.log}:\n{self.tail()}")


class Processes:
    """Children in the order in which they were started.

    Linux ties a child to the thread that started it, which must live as long as the child should.

    Args:
        logs: folder for a log file per child.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.children: list[Child] = []

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Child:
        """Starts a child in a session of its own.

        A Ctrl-C of the terminal reaches the parent alone.
        """
        log = self._logs / f"{name}.log"
        tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
        with log.open("ab") as output:
            process = subprocess.Popen(
                tied,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        child = Child(name, process, log)
        self.children.append(child)
        return child

    def check(self) -> None:
        """Raises ChildDied where one has ended."""
        for child in self.children:
            death = child.death()
            if death is not None:
                raise death

    def stop(self, groups: Iterable[Iterable[str]], grace_s: float) -> None:
        """Ends the named children, group by group, then whatever is left; SIGKILL behind the grace.

        A second Ctrl-C on the way kills them all at once.
        """
        with ExitStack() as at_last:
            at_last.callback(self.kill)
            for names in groups:
                wanted = set(names)
                self._terminate([child for child in self.children if child.name in wanted], grace_s)

    def kill(self) -> None:
        """Ends every child at once."""
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.process.wait()
        self.children.clear()

    @staticmethod
    def _terminate(children: Sequence[Child], grace_s: float) -> None:
        for child in children:
            child.process.terminate()
        deadline = time.monotonic() + grace_s
        while (
            any(child.process.poll() is None for child in children) and time.monotonic() < deadline
        ):
            time.sleep(POLL_S)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nothing listens on now, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
