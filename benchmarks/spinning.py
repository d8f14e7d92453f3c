"""What a draft and a target process on the same cores cost each other by spinning while they wait.

    python -m benchmarks.spinning [--dtype float32] [--repetitions 20] [--out FILE]

Two processes as the services are: the default target verifies 5 rows, and its first four layers
draft one. `in turns`: each works as soon as the other has answered, as in the rounds of a request;
whatever threads of the other still spin is in its way. `alone`: the other one is there but has long
been idle; a pause as long as its turn stands in its place. The loss is the one over the other.
Measured with the threads' environment that a cluster gives its services, and with OpenMP's
defaults. Blocks of both kinds alternate; medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.progress import track
from rich.table import Table

from benchmarks import passes, report
from benchmarks.prompts import running_text
from benchmarks.report import Limit
from outrider.cli.environment import service_environment
from outrider.models.hub import default_draft, default_target
from outrider.models.loading import load_model
from outrider.models.tokenizer import load_tokenizer

ROWS = {"target": 5, "draft": 1}
PLACES = {"target": default_target, "draft": default_draft}
CONTEXT = 256
TURNS = 8  # of a block; the first one of each is not counted
LOSS_LIMIT = 5.0  # percent
DRAFTERS = ("draft_model",)
SPINNING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def serve(role: str, dtype: str) -> None:
    """A pass for every line on standard input; its seconds, measured here, on standard output."""
    place = PLACES[role]()
    text = running_text(load_tokenizer(str(place)), CONTEXT)
    run = passes.own_pass(load_model(str(place), dtype=dtype), text, text[: ROWS[role]])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{run()}\n")
        sys.stdout.flush()


class Peer:
    """The process of a role, seen from here."""

    def __init__(self, role: str, process: subprocess.Popen[str]) -> None:
        self.role = role
        self._process = process
        if self._answer() != "ready":
            raise RuntimeError(f"{role}: it did not get ready")

    def turn(self) -> float:
        """Lets it do a pass; seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.role}: it ended with status {self._process.wait()}")
        return line.strip()


@contextmanager
def peer(role: str, dtype: str, environment: Mapping[str, str]) -> Iterator[Peer]:
    """A process of a role, ended behind the block."""
    command = [sys.executable, "-m", "benchmarks.spinning", "--serve", role, "--dtype", dtype]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
    )
    with process:  # closes the pipes, which ends it, and waits
        try:
            yield Peer(role, process)
        except BaseException:
            process.kill()
            raise


def alternate(target: Peer, draft: Peer, repetitions: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by role, `alone` and `in turns`."""
    seconds: dict[str, dict[str, list[float]]] = {
        role: {"alone": [], "in turns": []} for role in ROWS
    }
    pauses = {each.role: statistics.median(each.turn() for _ in range(TURNS)) for each in
              (target, draft)}  # fmt: skip
    for _ in track(range(repetitions), console=report.progress_console(), transient=True):
        for own, other in ((target, draft), (draft, target)):
            block = []
            for _ in range(TURNS):
                time.sleep(pauses[other.role])
                block.append(own.turn())
            seconds[own.role]["alone"] += block[1:]
        both = [(draft.turn(), target.turn()) for _ in range(TURNS)][1:]
        seconds["draft"]["in turns"] += [first for first, _ in both]
        seconds["target"]["in turns"] += [second for _, second in both]
    return seconds


def losses(seconds: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Medians in milliseconds, and the loss in percent, by role."""
    found = {}
    for role, kinds in seconds.items():
        alone, turns = (statistics.median(kinds[kind]) * 1000 for kind in ("alone", "in turns"))
        found[role] = {
            "alone_ms": alone,
            "in_turns_ms": turns,
            "loss_percent": (turns / alone - 1) * 100,
        }
    return found


def environments() -> dict[str, dict[str, str]]:
    """Those to compare: a cluster's, and OpenMP's defaults with as many threads."""
    theirs = {**os.environ, **service_environment(DRAFTERS)}
    bare = {name: value for name, value in theirs.items() if name not in SPINNING}
    return {"as in a cluster": theirs, "OpenMP's defaults": bare}


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Figures for people."""
    made = Table("environment", "process", "alone, ms", "in turns, ms", "loss")
    for environment, roles in found.items():
        for role, row in roles.items():
            made.add_row(
                environment,
                role,
                f"{row['alone_ms']:.2f}",
                f"{row['in_turns_ms']:.2f}",
                f"{row['loss_percent']:+.1f} %",
            )
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a cluster's own environment loses more than the limit."""
    parser = report.parser(__doc__, "spinning")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument(
        "--serve", choices=list(ROWS), help="for the processes that this one starts"
    )
    given: Any = parser.parse_args()
    if given.serve:
        serve(given.serve, given.dtype)
        return 0
    report.keep_to(given.cores)
    found = {}
    for name, environment in environments().items():
        with ExitStack() as stack:
            target, draft = (
                stack.enter_context(peer(role, given.dtype, environment)) for role in ROWS
            )
            found[name] = losses(alternate(target, draft, given.repetitions))
    report.console().print(table(found))
    settings = {
        name: service_environment(DRAFTERS)[name] for name in ("GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    }
    run = {"dtype": given.dtype, "repetitions": given.repetitions, "environment": settings}
    limits = [
        Limit(f"loss of {role}, percent", row["loss_percent"], LOSS_LIMIT)
        for role, row in found["as in a cluster"].items()
    ]
    return report.finish(given.out, run, {"environments": found}, limits)


if __name__ == "__main__":
    sys.exit(main())
