"""Texts with speculation against plain's in the same numbers: bfloat16 and int8, greedy and seeded.

    python -m tests.plain_sweep [--dtype bfloat16] [--fresh] [--jobs 2]

There is no outside reference for these: transformers rounds elsewhere. Plain texts, one stream at a
time, are the reference; every K, one stream and eight, must give the same texts, token for token.
Half of the prompts are drafted for by n-grams, which often agree, the others by the untrained cut,
which fills every pass with nodes. Each finished cell is appended to
tests/results/plain-DTYPE.jsonl, and a second run goes on where the first was stopped.
The summary is tests/results/plain-DTYPE.json. The exit status is 1 where any text differed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from rich.console import Console

from outrider import Client
from outrider.cli import provenance
from outrider.cli.cluster import Cluster
from outrider.models.loading import load_tokenizer
from tests import prompts as own
from tests.cells import FOLDER, done, progress_bar, run_cells
from tests.greedy import speculative

PROMPTS, TOKENS = 100, 128
DEPTHS = (1, 2, 4, 8)
SAMPLING: dict[str, Callable[[int], dict[str, Any]]] = {
    "greedy": lambda index: {"temperature": 0.0},
    "seeded": lambda index: {"temperature": 0.8, "top_p": 0.95, "seed": 1000 + index},
}


@dataclass(frozen=True)
class Cell:
    """One setting over all prompts; k=0 is the plain reference."""

    sampling: str
    k: int
    streams: int

    @property
    def key(self) -> str:
        """Names the cell in the log."""
        return f"{self.sampling}/k{self.k}/x{self.streams}"


def cells() -> list[Cell]:
    """Plain first, then every K at eight streams and at one."""
    plain = [Cell(sampling, 0, 1) for sampling in SAMPLING]
    return plain + [
        Cell(sampling, k, streams) for streams in (8, 1) for k in DEPTHS for sampling in SAMPLING
    ]


def prompts() -> list[list[int]]:
    """Our own prompts in the chat format, then as raw text, up to PROMPTS of them."""
    tokenizer = load_tokenizer("default")
    texts = [prompt.prompt for prompt in own.load()]
    chats = (
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for text in texts
    )
    raw = (tokenizer(text)["input_ids"] for text in texts)
    return [list(ids) for ids in islice((ids for each in (chats, raw) for ids in each), PROMPTS)]


def run(cell: Cell, asked: Sequence[Sequence[int]], address: str) -> dict[str, Any]:
    """The cell's texts, as digests, and counts."""
    started = time.monotonic()
    with Client(address) as client, ThreadPoolExecutor(cell.streams) as pool:
        results = list(
            pool.map(
                lambda index: client.generate(
                    prompt_token_ids=list(asked[index]),
                    max_tokens=TOKENS,
                    speculative=speculative(("ngram", "draft_model")[index % 2], cell.k),
                    **SAMPLING[cell.sampling](index),
                ),
                range(len(asked)),
            )
        )
    return {
        "key": cell.key,
        **asdict(cell),
        "texts": [_digest(result.token_ids) for result in results],
        "tokens": sum(len(result.token_ids) for result in results),
        "drafted": sum(result.speculation.drafted for result in results),
        "accepted": sum(result.speculation.accepted for result in results),
        "exact": all(result.exact for result in results),
        "seconds": round(time.monotonic() - started, 1),
    }


def _digest(tokens: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()[:16]


def differences(row: dict[str, Any], plain: dict[str, Any]) -> list[int]:
    """Indices of the prompts whose text is not plain's."""
    pairs = zip(row["texts"], plain["texts"], strict=True)
    return [index for index, (found, wanted) in enumerate(pairs) if found != wanted]


def main() -> int:
    """Runs what is missing and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "int8"), default="bfloat16")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--jobs", type=int, default=1, help="clusters side by side")
    given = parser.parse_args()
    log = FOLDER / f"plain-{given.dtype}.jsonl"
    FOLDER.mkdir(exist_ok=True)
    if given.fresh:
        log.unlink(missing_ok=True)
    console = Console(stderr=True)
    asked = prompts()
    finished = done(log)
    todo = [cell for cell in cells() if cell.key not in finished]
    with progress_bar(console) as progress:
        task = progress.add_task(given.dtype, total=len(todo))
        run_cells(
            todo,
            lambda cell, address: run(cell, asked, address),
            lambda: Cluster(
                drafters=["ngram", "draft_model"],
                dtype=given.dtype,
                arguments={"target": ["--no-profile"]},
            ),
            given.jobs,
            log,
            lambda: progress.advance(task),
        )
    return summarise(given.dtype, done(log), console)


def summarise(dtype: str, rows: dict[str, dict[str, Any]], console: Console) -> int:
    """Stores and prints what differs from plain; 1 where anything does or was not drafted for."""
    found = []
    for row in rows.values():
        plain = rows[f"{row['sampling']}/k0/x1"]
        different = differences(row, plain)
        found.append({**row, "texts": len(row["texts"]), "differences": different})
    compared = [row for row in found if row["k"]]
    wrong = [row["key"] for row in compared if row["differences"] or not row["accepted"]]
    wrong += [row["key"] for row in found if not row["exact"]]
    summary = {
        "run": provenance.facts(),
        "dtype": dtype,
        "texts": sum(row["texts"] for row in compared),
        "tokens": sum(row["tokens"] for row in compared),
        "drafted": sum(row["drafted"] for row in compared),
        "accepted": sum(row["accepted"] for row in compared),
        "differing_texts": sum(len(row["differences"]) for row in compared),
        "commits": sorted({row["commit"] for row in found}),
        "rows": found,
    }
    file = FOLDER / f"plain-{dtype}.json"
    file.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    counts = f"{summary['texts']} texts, {summary['tokens']} tokens"
    console.print(f"{dtype}: {counts}, {summary['differing_texts']} differ; wrong: {wrong or '-'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
