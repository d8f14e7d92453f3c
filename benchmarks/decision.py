"""How long the controller takes to decide a round: K, the tree, and the company search included.

    python -m benchmarks.decision [--rounds 4000] [--out FILE]

Every decision comes behind a simulated round, or behind a token of a free run whose drafts are bad,
which is not timed, and is timed by itself. Figures are the least over `BATCHES` parts of them, so
that other work on the machine does not count.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

from rich.progress import track
from rich.table import Table

from benchmarks import report
from orchestrator.adaptive import AdaptiveDepth
from orchestrator.costs import VerifyCost
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.peers import RunTokens
from orchestrator.state import Bounds
from orchestrator.survival import Survival
from outrider.core.round import Budget, Evidence, Load, Proposal
from outrider.core.tree import TokenTree

BATCHES = 20
LIMIT_US = 50.0
ACCEPTANCE = {"round": 0.8, "run": 0.05}
WARM_UP = 100
FAR = 1 << 30  # tokens still allowed
SESSIONS = (1, 8, 32)
BOUNDS = {  # n_max, most nodes
    "chain of 8": (8, 8),
    "chain of 16": (16, 16),
    "12 nodes, n_max 4": (4, 12),
    "12 nodes, n_max 8": (8, 12),
    "24 nodes, n_max 16": (16, 24),
}
PROFILE = [
    (rows, context, 9_000 + 350 * rows + 2 * context)
    for context in (64, 512)
    for rows in (1, 2, 4, 8, 16, 32, 64)
]


@dataclass
class Kind:
    """A kind of decision, and a controller that has had some rounds."""

    sessions: int
    bounds: str
    place: str

    def __post_init__(self) -> None:
        most, nodes = BOUNDS[self.bounds]
        self.random = random.Random(7)
        self.target = TargetCosts(VerifyCost(PROFILE), batch=16)
        self.drafter = DraftCosts()
        self.controller = AdaptiveDepth(
            Bounds(0, most, nodes, 4),
            Budget(most, nodes),
            Survival(self.drafter.counts, most),
            self.target,
            self.drafter,
        )
        load = self._load()
        for _ in range(WARM_UP):
            self._round(load)
            self.controller.choose(FAR)

    def decide(self) -> float:
        """A round or a token of a free run, then the decision: microseconds that it took."""
        load = self._load()
        if self.place == "run":
            forward = int(self.target.verify(load.rows))
            self.controller.ran(RunTokens((0,), 0, forward, load), 0.012)
        else:
            self._round(load)
        started = time.perf_counter_ns()
        self.controller.choose(FAR)
        return (time.perf_counter_ns() - started) / 1e3

    def _load(self) -> Load:
        return Load(self.sessions, self.sessions * 3, 0, self.sessions, 0)

    def _round(self, load: Load) -> None:
        depth = self.random.randint(1, 4)
        kept = next(
            (i for i in range(depth) if self.random.random() > ACCEPTANCE[self.place]), depth
        )
        tree, budget = TokenTree.chain(0, [0] * depth), Budget(depth, depth)
        forward = int(9_000 + 350 * load.rows * self.random.uniform(0.9, 1.1))
        self.controller.drafted(budget, Proposal(tree, "m", draft_us=700 * depth), 0.001 * depth)
        evidence = Evidence((), queue_us=100, forward_us=forward, load=load)
        self.controller.verified(1 + depth, 256, evidence, 0.001 + forward / 1e6)
        self.controller.decided(budget, "m", tree, range(1, kept + 1))


def measure(kind: Kind, rounds: int) -> dict[str, Any]:
    """Median and 99th percentile of `rounds` decisions, microseconds."""
    medians, highs = [], []
    for _ in range(BATCHES):
        times = sorted(kind.decide() for _ in range(max(1, rounds // BATCHES)))
        medians.append(statistics.median(times))
        highs.append(times[int(0.99 * (len(times) - 1))])
    return {
        "sessions": kind.sessions,
        "bounds": kind.bounds,
        "place": kind.place,
        "median_us": min(medians),
        "p99_us": min(highs),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Figures for people: median / p99."""
    made = Table("sessions", "bounds", *(f"{place}, us" for place in ACCEPTANCE))
    for sessions, bounds in product(SESSIONS, BOUNDS):
        cells = [row for row in rows if (row["sessions"], row["bounds"]) == (sessions, bounds)]
        made.add_row(
            str(sessions),
            bounds,
            *(f"{cell['median_us']:.1f} / {cell['p99_us']:.1f}" for cell in cells),
        )
    return made


def main() -> int:
    """Measures, prints, stores; 1 where the slowest kind of decision passes the limit."""
    parser = report.parser(__doc__, "decision")
    parser.add_argument("--rounds", type=int, default=4000)
    given = parser.parse_args()
    cores = report.keep_to(given.cores)
    kinds = list(product(SESSIONS, BOUNDS, ACCEPTANCE))
    rows = [
        measure(Kind(*kind), given.rounds)
        for kind in track(kinds, console=report.progress_console(), transient=True)
    ]
    report.console().print(table(rows))
    worst = max(rows, key=lambda row: float(row["median_us"]))
    name = f"{worst['sessions']} sessions, {worst['bounds']}, {worst['place']}, us"
    limits = [report.Limit(f"slowest kind: {name}", worst["median_us"], LIMIT_US)]
    run = {"rounds": given.rounds, "batches": BATCHES, "cores": cores}
    return report.finish(given.out, run, {"decisions": rows}, limits)


if __name__ == "__main__":
    sys.exit(main())
