"""Writes README's tables from the stored results, between their markers; `--check` only says
whether they are current.

python scripts/readme_table.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
SWEEP = ROOT / "tests" / "results" / "sweep.json"
PLAIN_SWEEPS = [ROOT / "tests" / "results" / f"plain-{name}.json" for name in ("bfloat16", "int8")]


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def bench() -> str:
    """Methods against plain decoding, greedy and, where it was measured, at temperature 1."""
    document = _load(RESULTS / "bench.json")
    run, rows = document["run"], document["methods"]
    documents, drawn = [document], {}
    header = (
        "| method | K, nodes | tokens/s | speed-up over plain | least of the task groups "
        "| tokens a pass | same text |"
    )
    if (RESULTS / "bench_sampled.json").exists():
        documents.append(_load(RESULTS / "bench_sampled.json"))
        drawn = {row["method"]: row for row in documents[1]["methods"]}
        header += " temperature 1: K, nodes | speed-up | tokens a pass |"
    lines = [header, "|---" * (header.count("|") - 1) + "|"]
    for row in rows:
        name = row["method"]
        same = {True: "yes", False: "NO", None: "-"}[row["identical_to_plain"]]
        least = min(group["speedup"] for group in row["categories"].values())
        line = (
            f"| `{name}` | {_shape(run, name)} | {row['tokens_per_second']:.1f} "
            f"| {_number(row['speedup'])} | {_number(least)} "
            f"| {_number(row['acceptance_length'])} | {same} |"
        )
        if name in drawn:
            shape, other = _shape(documents[1]["run"], name), drawn[name]
            line += (
                f" {shape} | {_number(other['speedup'])} | {_number(other['acceptance_length'])} |"
            )
        lines.append(line)
    machine = run["machine"]
    commits = sorted({each["run"]["commit"][:10] for each in documents})
    lines.append("")
    lines.append(
        f"{run['model']}, {run['dtype']}, {rows[0]['prompts']} prompts, one stream; "
        f"{machine['cores']} cores of {machine['cpu']}; commit {', '.join(commits)}; medians of "
        "per-prompt ratios, rates over all prompts; K and nodes the best of a few on some of the "
        "prompts."
    )
    return "\n".join(lines)


def _shape(run: dict[str, Any], method: str) -> str:
    depth, nodes = run["k"][method], run["nodes"][method]
    return f"{depth}" if nodes is None or nodes <= depth else f"{depth}, {nodes}"


def compare() -> str:
    """Outrider beside other engines; of transformers' plain cases the best."""
    document = _load(RESULTS / "compare.json")
    run, machine = document["run"], document["run"]["machine"]
    lines = [
        "| engine | tokens/s | of transformers' best plain | first token, ms |",
        "|---|---|---|---|",
    ]
    for name, row in document["engines"].items():
        if name.endswith(("sdpa", "eager")) and row["rate_ratio"] < 1.0:
            continue
        lines.append(
            f"| {name} | {row['tokens_per_second']:.1f} | {_number(row['rate_ratio'])} "
            f"| {row['first_token_s'] * 1000:.0f} |"
        )
    for name, reason in document["skipped"].items():
        escaped = reason.replace("|", "\\|")
        lines.append(f"| {name} | - | - | {escaped} |")
    lines.append("")
    lines.append(
        f"{run['model']}, {run['prompts']} prompts, {run['tokens']} tokens each; "
        f"{machine['cores']} cores of {machine['cpu']}; commit {run['commit'][:10]}."
    )
    return "\n".join(lines)


def loadtest() -> str:
    """What must hold of adaptive K under load.

    Raises:
        ValueError: the result is a trial, which claims nothing.
    """
    document = _load(RESULTS / "loadtest.json")
    if document["kind"] != "claims":
        raise ValueError(f"loadtest.json: is a {document['kind']}, limit claims")
    lines = ["| claim | figure | measured | limit | holds |", "|---|---|---|---|---|"]
    for name, claim in document["claims"].items():
        for limit in claim["limits"]:
            sign = "at least" if limit["least"] else "at most"
            lines.append(
                f"| {name} | {limit['name']} | {_number(limit['value'])} "
                f"| {sign} {limit['bound']:g} | {'yes' if limit['kept'] else 'NO'} |"
            )
    run = next(iter(document["claims"].values()))["run"]
    machine = run["machine"]
    commits = sorted({str(claim["run"]["commit"])[:10] for claim in document["claims"].values()})
    lines += [
        "",
        f"Runs of {run['load']['seconds']} s, {run['pairs']} of each setting, alternating; "
        f"{machine['cores']} cores of {machine['cpu']}; commit {', '.join(commits)}.",
    ]
    return "\n".join(lines)


def sweep() -> str:
    """What the exactness sweeps covered."""
    whole = _load(SWEEP)
    others = [
        f"In {plain['dtype']}, greedy and seeded, {plain['texts']} texts, "
        f"{plain['tokens']} tokens: **{plain['differing_texts']} differ** from those without "
        f"speculation ({_commits(plain)})."
        for plain in map(_load, PLAIN_SWEEPS)
    ]
    return (
        f"{whole['cells']} of {whole['cells_in_all']} settings run so far, "
        f"{whole['texts']} texts, {whole['tokens']} tokens: "
        f"**{whole['differing_texts']} texts differ** from transformers' own greedy decoding "
        f"(float32; {_commits(whole)}). {' '.join(others)} "
        "`.venv/bin/python -m tests.plain_sweep --dtype int8` makes the last."
    )


def _commits(document: dict[str, Any]) -> str:
    return "commits " + ", ".join(commit[:10] for commit in document["commits"])


TABLES: dict[str, Callable[[], str]] = {
    "bench": bench,
    "compare": compare,
    "sweep": sweep,
    "loadtest": loadtest,
}
OPTIONAL = frozenset({"loadtest"})
"""Tables for which README may have no markers."""


def rendered(text: str) -> str:
    """README with every table made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            if name in OPTIONAL:
                continue
            raise ValueError(f"README.md: no markers for {name}")
        table = make()
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def main() -> int:
    """1 where `--check` finds README out of date."""
    current = README.read_text(encoding="utf-8")
    wanted = rendered(current)
    if "--check" in sys.argv[1:]:
        return int(wanted != current)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
