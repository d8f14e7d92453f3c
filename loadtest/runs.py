"""One Locust process from start to end, and the cluster that it loads."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest import report
from loadtest.grid import SETTINGS, block
from outrider import Client
from outrider.cli import tether
from outrider.cli.cluster import Cluster
from outrider.cli.processes import ClusterError

LOCUSTFILE = Path(__file__).parent / "locustfile.py"
STOP_S = 120  # for requests that are running when the time is over


class LoadtestError(ClusterError):
    """A run gave no figures; the message is for the user."""


@dataclass(frozen=True)
class Load:
    """What all runs of a comparison share.

    seconds: length of a run; throughput counts that long from its first request on.
    max_tokens: of each request.
    method: the drafter; "" is the server's first one.
    """

    seconds: int
    max_tokens: int
    method: str


@dataclass(frozen=True)
class Served:
    """What an own cluster serves: Cluster's arguments of these names."""

    target: str = "default"
    drafters: tuple[str, ...] | None = None
    dtype: str = "auto"
    device: str = "cpu"

    def cluster(
        self, arguments: dict[str, Sequence[str]] | None = None, *, drafters: bool = True
    ) -> Cluster:
        """A cluster that is not yet started.

        Args:
            arguments: further flags by service.
            drafters: False: without any draft service.
        """
        chosen = self.drafters if drafters else ()
        return Cluster(self.target, chosen, self.dtype, self.device, arguments=arguments)


@contextmanager
def batch_limit(served: Served, limit: int | None, address: str | None) -> Iterator[str]:
    """The given address, or that of a cluster whose target takes at most `limit` sessions."""
    if address is not None:
        yield address
    else:
        flags = [] if limit is None else ["--max-batch", str(limit)]
        with served.cluster({"target": flags}) as cluster:
            yield cluster.address


def warm_up(address: str, load: Load, settings: Sequence[str]) -> None:
    """What the first request of all has to wait for is no part of a run."""
    with Client(address) as client:
        for setting in settings:
            client.generate(
                "Once upon a time",
                max_tokens=16,
                temperature=0.0,
                speculative=block(setting, load.method),
            )


def run_locust(
    address: str, load: Load, setting: str, users: int, prompts: Path, temperature: float
) -> report.Figures:
    """One run, headless.

    Raises:
        LoadtestError: it stored no samples, or none was answered; the message says why.
    """
    depth = SETTINGS[setting]
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.json"
        command = [
            *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
            *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless"),
            *("--only-summary", "--users", str(users), "--spawn-rate", str(users)),
            *("--run-time", f"{load.seconds}s", "--stop-timeout", str(STOP_S)),
            *("--host", address, "--exit-code-on-error", "0", "--samples", str(samples)),
            *("--max-tokens", str(load.max_tokens), "--temperature", str(temperature)),
            *("--k", str(-1 if depth is None else depth), "--prompts", str(prompts)),
        ]
        if load.method:
            command += ["--method", load.method]
        limit_s = load.seconds + STOP_S + 60
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LoadtestError(f"locust: did not end within {limit_s} s") from error
        if not samples.exists():
            raise LoadtestError(
                f"locust stored no samples (status {done.returncode}): {done.stderr[-2000:]}"
            )
        seen, failures = report.read_samples(samples)
    if not seen:
        raise LoadtestError(f"{setting}, {users} users: no request was answered: {dict(failures)}")
    return report.summarise(seen, failures, longest_s=load.seconds)
