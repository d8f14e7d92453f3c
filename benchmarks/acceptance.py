"""How many tokens a target pass yields with each drafter, on the fixed part of Spec-Bench.

    python -m benchmarks.acceptance [--methods eagle,medusa] [--temperatures 0,1] [--at-once 4]

Real services, no timing: acceptance does not depend on speed, so several texts run at once. Each
drafter proposes chains of its depth and trees of up to 12 nodes at some depths. Told are, over
all target passes behind the prefill, tokens per pass (plain decoding: 1), and the share of rounds
whose first position was kept (`benchmarks.agreement` has it for all tokens). Temperature 1 has no
seed, so that drafts are drawn and Rejection decides. Methods are those that the default target
comes with; results of others stay as they were stored.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from benchmarks import report
from benchmarks.report import Limit
from benchmarks.spec_bench import SUBSET
from outrider import Client
from outrider.cli.cluster import Cluster
from outrider.cli.prompts import Prompt, read_prompts
from outrider.drafting.specs import AUTO, default_specs
from outrider.models.hub import DEFAULT
from outrider.results import GenerationResult
from training.files import read_json

NODES = 12
CHAINS = {"ngram": 5}
CHAIN = 4
TREE_DEPTHS = {"eagle": (5,), "draft_model": (5,), "medusa": (4,), "auto": (8,)}
# Method -> limits of chains and of the best tree.
LIMITS: dict[str, tuple[float, float | None]] = {
    "eagle": (1.75, 2.05),
    "draft_model": (1.65, 1.90),
    "medusa": (1.45, 1.70),
    "ngram": (1.65, None),
    "lookahead": (1.35, None),
    "auto": (2.25, 2.40),
}


@dataclass(frozen=True)
class Setting:
    """What is asked for: a chain where there are as many nodes as the depth."""

    method: str
    temperature: float
    depth: int
    nodes: int


@dataclass(frozen=True)
class Found:
    """What a setting came to; `groups` has tokens per pass by task group."""

    setting: Setting
    tokens: int
    passes: int
    first: float
    groups: dict[str, float]

    @property
    def tokens_per_pass(self) -> float:
        """1 for plain decoding."""
        return self.tokens / self.passes

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        figures = {"first": self.first, "tokens": self.tokens, "passes": self.passes}
        return {
            **asdict(self.setting),
            "tokens_per_pass": self.tokens_per_pass,
            **figures,
            "groups": self.groups,
        }


def settings(methods: Sequence[str], temperatures: Sequence[float]) -> Iterator[Setting]:
    """Chains, then trees, of every method."""
    for method in methods:
        for temperature in temperatures:
            if method == "lookahead":  # its window is a tree by itself
                yield Setting(method, temperature, CHAIN, NODES)
                continue
            chain = CHAINS.get(method, CHAIN)
            yield Setting(method, temperature, chain, chain)
            for depth in TREE_DEPTHS.get(method, ()):
                yield Setting(method, temperature, depth, NODES)


def run(
    client: Client, setting: Setting, prompts: Sequence[Prompt], tokens: int, at_once: int
) -> Found:
    """All prompts under a setting."""
    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(partial(_generate, client, setting, tokens), prompts))
    by_group = defaultdict(list)
    for prompt, result in zip(prompts, results, strict=True):
        by_group[prompt.category].append(result)
    drafted = sum(sum(r.speculation.drafted_per_position[:1]) for r in results)
    kept = sum(sum(r.speculation.accepted_per_position[:1]) for r in results)
    groups = {name: _rate(some) for name, some in by_group.items()}
    return Found(setting, *_counts(results), kept / max(1, drafted), groups)


def _generate(client: Client, setting: Setting, tokens: int, prompt: Prompt) -> GenerationResult:
    depth = setting.depth
    return client.chat(
        [{"role": "user", "content": prompt.text}],
        max_tokens=tokens,
        temperature=setting.temperature,
        speculative={
            "method": setting.method,
            "n_max": depth,
            "n_min": depth,
            "nodes_max": setting.nodes,
        },
    )


def _counts(results: Sequence[GenerationResult]) -> tuple[int, int]:
    """Tokens behind the prefill's, and passes that made them."""
    tokens = sum(max(result.usage.completion_tokens - 1, 0) for result in results)
    return tokens, sum(result.speculation.passes for result in results)


def _rate(results: Sequence[GenerationResult]) -> float:
    tokens, passes = _counts(results)
    return tokens / max(1, passes)


def limits(rows: Sequence[dict[str, Any]]) -> list[Limit]:
    """The limits at temperature 0 of what was measured; of several trees the best counts."""
    made = []
    for method, (chain, tree) in LIMITS.items():
        own = [row for row in rows if row["method"] == method and row["temperature"] == 0]
        trees = [row for row in own if row["nodes"] > row["depth"]]
        chains = [row for row in own if row["nodes"] == row["depth"]] or trees
        figures = (
            ("chain", chain, [row["tokens_per_pass"] for row in chains]),
            ("tree", tree, [row["tokens_per_pass"] for row in trees]),
        )
        made += [
            Limit(f"{method}, {name}", max(values), bound, least=True)
            for name, bound, values in figures
            if bound is not None and values
        ]
    return made


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Figures for people."""
    groups = list(rows[0]["groups"])
    made = Table("method", "T", "depth", "nodes", "first", "tokens/pass", *groups)
    for row in rows:
        figures = [row["tokens_per_pass"], *(row["groups"][name] for name in groups)]
        shown = [f"{row['first']:.3f}", *(f"{figure:.2f}" for figure in figures)]
        made.add_row(
            row["method"],
            f"{row['temperature']:g}",
            str(row["depth"]),
            str(row["nodes"]),
            *shown,
        )
    return made


def stored(path: Path, asked: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of other methods that an earlier run has stored."""
    rows = read_json(path)["rows"] if path.exists() else []
    return [row for row in rows if row["method"] not in asked]


def main() -> int:
    """Measures, prints, stores; 1 where a limit is missed."""
    parser = report.parser(__doc__, "acceptance")
    served = (*default_specs(DEFAULT), AUTO)
    parser.add_argument("--methods", default=",".join(m for m in LIMITS if m in served))
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--limit", type=int, help="only the first prompts")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--drafter", action="append", help="NAME=PATH of one that is not shipped")
    given = parser.parse_args()
    methods = given.methods.split(",")
    wanted = list(settings(methods, [float(t) for t in given.temperatures.split(",")]))
    prompts = read_prompts(SUBSET, given.limit, chat=True)
    rows = stored(given.out, methods)
    named = {spec.partition("=")[0]: spec for spec in given.drafter or ()}
    needed = default_specs(DEFAULT) if AUTO in methods else methods
    drafters = [named.pop(name, name) for name in needed if name != AUTO] + list(named.values())
    with (
        Cluster(drafters=drafters, dtype=given.dtype) as cluster,
        Client(cluster.address) as client,
    ):
        label = client.info().model.numerics.label
        with Progress(console=report.progress_console()) as progress:
            task = progress.add_task("", total=len(wanted))
            for setting in wanted:
                found = run(client, setting, prompts, given.tokens, given.at_once)
                rows.append({**found.to_json(), "dtype": label})
                progress.update(task, advance=1, description=setting.method)
    report.console().print(table(rows))
    facts = {"prompts": len(prompts), "tokens": given.tokens, "dtype": label}
    return report.finish(given.out, facts, {"rows": rows}, limits(rows))


if __name__ == "__main__":
    sys.exit(main())
