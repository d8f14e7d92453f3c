"""The whole greedy sweep: every prompt, drafter, K, alone and eight at once, against plain and
transformers.

    python -m tests.sweep [--fresh] [--jobs 2]

Each finished cell is appended to tests/results/sweep.jsonl with its commit; a second run goes on
where the first was stopped. The summary is tests/results/sweep.json. The exit status is 1 where any
text differed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from outrider.cli import provenance
from outrider.cli.cluster import Cluster
from tests import prompts as own
from tests.cells import FOLDER, done, progress_bar, run_cells
from tests.greedy import Reference, drafter_flags, run
from tests.references import KeptReferences

LOG, SUMMARY = FOLDER / "sweep.jsonl", FOLDER / "sweep.json"
SHARED = Path(__file__).parents[2] / "shared" / "data"
SHARED_PROMPTS = 24
DEPTHS = (1, 2, 4, 8)
VARIANTS = {"cut": ("ngram", "draft_model"), "noisy": ("draft_model",), "self": ("draft_model",)}


@dataclass(frozen=True)
class Cell:
    """One setting over one set of prompts."""

    prompts: str
    variant: str
    method: str
    k: int
    streams: int

    @property
    def key(self) -> str:
        """Names the cell in the log."""
        return f"{self.prompts}/{self.variant}/{self.method}/k{self.k}/x{self.streams}"


def cells(sets: list[str]) -> Iterator[Cell]:
    """All cells in the order in which they run: a variant's cluster is started once."""
    for variant, methods in VARIANTS.items():
        for name in sets:
            for streams in (8, 1) if name == "own" else (8,):
                if variant == "cut":
                    yield Cell(name, variant, "plain", 0, streams)
                for method in methods:
                    for k in depths(name, variant, streams):
                        yield Cell(name, variant, method, k, streams)


def depths(prompts: str, variant: str, streams: int) -> tuple[int, ...]:
    """Every K; one K for what is slow and only varies what every K has shown already."""
    whole = prompts == "own" and (streams == 8 or variant == "cut")
    return DEPTHS if whole else (4,)


def prompt_sets(reference: Reference) -> dict[str, list[list[int]]]:
    """Token ids.

    Our own prompts (chat-formatted, and raw edge cases), and the shared sets where they are there.
    """
    chats = [reference.encode(p.prompt, chat=True) for p in own.load()]
    edges = [reference.encode(p.prompt, chat=False) for p in [*own.one_token(), *own.long()]]
    sets = {"own": chats + edges}
    spec_bench = SHARED / "spec_bench" / "question.jsonl"
    if spec_bench.exists():
        lines = spec_bench.read_text(encoding="utf-8").splitlines()
        step = max(1, len(lines) // SHARED_PROMPTS)
        texts = [json.loads(line)["turns"][0] for line in lines[::step][:SHARED_PROMPTS]]
        sets["spec_bench"] = [reference.encode(text, chat=True)[:1200] for text in texts]
    return sets


def check(
    cell: Cell,
    prompts: list[list[int]],
    expected: list[list[int]],
    address: str,
    reference: Reference,
) -> Any:
    """Runs a cell: its row for the log."""
    started = time.monotonic()
    results = run(address, prompts, cell.method, cell.k, cell.streams)
    differences = []
    for index, (prompt, wanted, result) in enumerate(zip(prompts, expected, results, strict=True)):
        difference = reference.compare(prompt, wanted, result.token_ids)
        if difference is not None:
            differences.append({"prompt": index, **asdict(difference)})
    return {
        "key": cell.key,
        **asdict(cell),
        "texts": len(results),
        "tokens": sum(len(result.token_ids) for result in results),
        "drafted": sum(result.speculation.drafted for result in results),
        "accepted": sum(result.speculation.accepted for result in results),
        "differences": differences,
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> int:
    """Runs what is missing and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument(
        "--summary", action="store_true", help="only condense what was found so far"
    )
    parser.add_argument("--jobs", type=int, default=1, help="clusters side by side")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if arguments.fresh:
        LOG.unlink(missing_ok=True)
    console = Console(stderr=True)
    if arguments.summary:
        return _summarise(console)
    reference = Reference()
    sets = prompt_sets(reference)
    finished = done(LOG)
    todo = [cell for cell in cells(list(sets)) if cell.key not in finished]
    with progress_bar(console) as progress:
        if todo:
            expected = _references(reference, sets, progress)
        task = progress.add_task("cells", total=len(todo))
        for variant in VARIANTS:
            mine = [cell for cell in todo if cell.variant == variant]
            if mine:
                run_cells(
                    mine,
                    lambda cell, address: check(
                        cell, sets[cell.prompts], expected[cell.prompts], address, reference
                    ),
                    partial(_cluster, variant),
                    arguments.jobs,
                    LOG,
                    lambda: progress.advance(task),
                )
    return _summarise(console)


def _agreed(row: dict[str, Any]) -> bool:
    return row["accepted"] > 0 or (row["variant"], row["method"]) == ("cut", "draft_model")


def _cluster(variant: str) -> Cluster:
    return Cluster(
        drafters=drafter_flags(variant), dtype="float32", arguments={"target": ["--no-profile"]}
    )


def _references(
    reference: Reference, sets: dict[str, list[list[int]]], progress: Progress
) -> dict[str, Any]:
    torch.set_num_threads(os.cpu_count() or 1)  # nothing else runs yet
    kept = KeptReferences(reference, FOLDER / "references.jsonl")
    task = progress.add_task("transformers", total=sum(map(len, sets.values())))
    expected: dict[str, list[list[int]]] = {}
    for name, prompts in sets.items():
        expected[name] = []
        for prompt in prompts:
            expected[name].append(kept.generate(prompt))
            progress.advance(task)
    return expected


def _summarise(console: Console) -> int:
    rows = list(done(LOG).values())
    differing = [row for row in rows if row["differences"]]
    # The untrained cut may agree with the target nowhere; it must have drafted all the same.
    undrafted = [row["key"] for row in rows if row["k"] and not (row["drafted"] and _agreed(row))]
    summary = {
        "run": provenance.facts(),
        "cells": len(rows),
        "cells_in_all": len(list(cells(["own", "spec_bench"]))),
        "texts": sum(row["texts"] for row in rows),
        "tokens": sum(row["tokens"] for row in rows),
        "differing_texts": sum(len(row["differences"]) for row in rows),
        "cells_without_drafts": undrafted,
        "commits": sorted({row["commit"] for row in rows}),
        "rows": rows,
    }
    SUMMARY.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for row in differing:
        for difference in row["differences"]:
            console.print(f"{row['key']}: {difference}")
    console.print(
        f"{summary['texts']} texts, {summary['tokens']} tokens, "
        f"{summary['differing_texts']} differ; cells without drafts: {undrafted or 'none'}"
    )
    return 1 if differing or undrafted else 0


if __name__ == "__main__":
    sys.exit(main())
