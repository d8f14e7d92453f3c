"""Where a round's time and bytes go: draft, verify, wire, orchestrator; Match and Rejection.

    python -m benchmarks.overhead [--address HOST:PORT] [--k 4] [--prompts 8] [--tokens 64] [--out
    FILE]

Times are per round, medians over requests, from the orchestrator's own clock: `draft` and `verify`
are what the services say that they computed, `queue` what they say that requests waited, `wire` the
rest of the waiting, and `orchestrator` what lies between. Bytes are serialised messages, both legs
and directions, features apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from outrider import Client, GenerationResult
from outrider.cli import provenance
from outrider.cli.cluster import Cluster
from tests import prompts as own

RESULTS = Path(__file__).parent / "results"
PARTS = ("draft", "verify", "queue", "wire", "orchestrator")
SHARE_LIMIT = 0.10  # of orchestrator and wire together
BYTES_PER_ROUND = 150
# Rule -> sampling options, most bytes for each drafted node.
RULES: dict[str, tuple[dict[str, Any], int]] = {
    "match": ({"temperature": 0.0}, 60),
    "rejection": ({"temperature": 1.0}, 480),
}


def parts(result: GenerationResult) -> dict[str, float]:
    """Milliseconds per target pass of one request, split."""
    t = result.timings
    waited = t.draft_wait_us + t.verify_wait_us
    computed = t.draft_us + t.verify_us
    split = {
        "draft": t.draft_us,
        "verify": t.verify_us,
        "queue": t.queue_us,
        "wire": waited - computed - t.queue_us,
        "orchestrator": t.total_us - t.first_token_us - waited,
    }
    return {name: us / 1000 / result.speculation.passes for name, us in split.items()}


def summarise(results: Sequence[GenerationResult], bytes_per_node: int) -> dict[str, Any]:
    """The figures of one rule."""
    rows = [parts(result) for result in results]
    medians = {name: statistics.median(row[name] for row in rows) for name in PARTS}
    drafted = sum(result.speculation.drafted for result in results)
    rounds = sum(result.speculation.rounds for result in results)
    sent = sum(result.timings.round_bytes for result in results)
    tokens = sum(result.speculation.emitted for result in results)
    allowed = bytes_per_node * drafted + BYTES_PER_ROUND * rounds
    share = statistics.median(
        (row["wire"] + row["orchestrator"]) / sum(row.values()) for row in rows
    )
    return {
        "requests": len(results),
        "rounds": rounds,
        "drafted": drafted,
        "ms_per_round": medians,
        "orchestrator_and_wire_share": share,
        "share_limit": SHARE_LIMIT,
        "bytes": sent,
        "bytes_limit": allowed,
        "bytes_per_round": sent / rounds,
        "bytes_per_drafted_node_behind_150_a_round": (sent - BYTES_PER_ROUND * rounds) / drafted,
        "bytes_per_committed_token": sent / tokens,
        "acceptance_length": tokens / rounds,
    }


def measure(client: Client, method: str, k: int, count: int, tokens: int) -> dict[str, Any]:
    """Figures of both rules, prompts in turn."""
    results: dict[str, list[GenerationResult]] = {rule: [] for rule in RULES}
    prompts = own.interleaved(count + 1)
    for index, prompt in enumerate(track(prompts, console=Console(stderr=True), transient=True)):
        for rule, (sampling, _) in RULES.items():
            result = client.chat(
                [{"role": "user", "content": prompt.prompt}],
                max_tokens=tokens,
                ignore_eos=True,
                speculative={"method": method, "n_max": k, "n_min": k},
                **sampling,
            )
            if index and result.speculation.rounds:  # the first prompt warms up
                results[rule].append(result)
    return {rule: summarise(results[rule], limit) for rule, (_, limit) in RULES.items()}


def table(figures: dict[str, Any]) -> Table:
    """The figures for people."""
    made = Table(
        "rule", *(f"{part}, ms" for part in PARTS), "wire + orch.", "B/round", "limit", "B/token"
    )
    for rule, row in figures.items():
        made.add_row(
            rule,
            *(f"{row['ms_per_round'][part]:.2f}" for part in PARTS),
            f"{row['orchestrator_and_wire_share']:.1%}",
            f"{row['bytes_per_round']:.0f}",
            f"{row['bytes_limit'] / row['rounds']:.0f}",
            f"{row['bytes_per_committed_token']:.0f}",
        )
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--address", help="a running orchestrator; its own cluster otherwise")
    parser.add_argument("--method", default="draft_model")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.json")
    given = parser.parse_args()
    with ExitStack() as stack:
        address = given.address or stack.enter_context(Cluster()).address
        client = stack.enter_context(Client(address))
        figures = measure(client, given.method, given.k, given.prompts, given.tokens)
        info = client.info()
    console = Console()
    console.print(table(figures))
    run = {
        "model": info.model.name,
        "dtype": info.model.numerics.label,
        "k": given.k,
        **provenance.facts(),
    }
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(
        json.dumps({"run": run, "rules": figures}, indent=1) + "\n", encoding="utf-8"
    )
    over = [
        rule
        for rule, row in figures.items()
        if row["orchestrator_and_wire_share"] > SHARE_LIMIT or row["bytes"] > row["bytes_limit"]
    ]
    if over:
        console.print(f"over a limit: {', '.join(over)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
