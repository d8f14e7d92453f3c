"""What drawing a token at each of five rows costs, against the forward pass that gives the rows.

    python -m benchmarks.sampling [--model default] [--dtypes bfloat16] [--repeats 60] [--out FILE]

The rows are logits of the target behind our own prompts. A pass and every way to sample take
turns; figures are medians. The seeded draw at temperature 1 and top_p 0.95 may cost SHARE_LIMIT of
the pass.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from outrider.cli import provenance
from outrider.core.round import SamplingParams
from outrider.core.sampling import prepare
from outrider.core.tree import TokenTree
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.loading import load_model, load_tokenizer
from target_service.evidence import gather
from target_service.session import Session
from tests import prompts as own

RESULTS = Path(__file__).parent / "results"
ROWS = 5
SHARE_LIMIT = 0.05
LIMITED = "seeded, top_p 0.95"
WAYS = {
    LIMITED: SamplingParams(top_p=0.95, seed=7),
    "seeded": SamplingParams(seed=7),
    "unseeded, top_p 0.95": SamplingParams(top_p=0.95),
    "unseeded": SamplingParams(),
    "seeded, top_k 50": SamplingParams(top_k=50, seed=7),
    "greedy": SamplingParams(temperature=0.0),
}


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


class Rows:
    """The last rows of a prompt: again and again through the model, and their logits."""

    def __init__(self, model: CausalLM, ids: list[int]) -> None:
        self.model, self.ids = model, ids
        self.cache = model.new_cache()
        with torch.inference_mode():
            model.forward([Segment.chain(self.cache, ids[:-ROWS])])
        self.tree = TokenTree.chain(ids[-ROWS], ids[1 - ROWS :])
        self.logits = self.once()

    def once(self) -> torch.Tensor:
        """Logits [ROWS, V] by a pass, whose rows the cache then drops."""
        with torch.inference_mode():
            hidden = self.model.forward([Segment.chain(self.cache, self.ids[-ROWS:])])
            logits = self.model.logits(hidden.states)
            self.cache.keep(len(self.ids) - ROWS)
        return logits

    def sample(self, params: SamplingParams) -> Callable[[], object]:
        """Takes a token at each row as the target does."""
        session = Session("benchmark", list(self.ids), params, self.cache, len(self.ids))
        return lambda: gather(session, self.tree, self.logits, {})


def measure(model: CausalLM, prompts: list[list[int]], repeats: int) -> dict[str, Any]:
    """Medians in milliseconds of the pass and of every way, interleaved."""
    rows = [Rows(model, ids) for ids in prompts]
    ways = [{name: each.sample(params) for name, params in WAYS.items()} for each in rows]
    times: dict[str, list[float]] = {"pass": [], **{name: [] for name in WAYS}}
    for number in range(-len(rows), repeats):  # below 0 it warms up
        turn = number % len(rows)
        for name, work in {"pass": rows[turn].once, **ways[turn]}.items():
            taken = timed(work)
            if number >= 0:
                times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    passes = medians.pop("pass")
    return {
        "pass_ms": passes,
        "ms": medians,
        "share_of_pass": {name: taken / passes for name, taken in medians.items()},
    }


def table(figures: dict[str, dict[str, Any]]) -> Table:
    """The figures for people."""
    made = Table(f"{ROWS} rows", *(f"{dtype}, ms" for dtype in figures), "share of the pass")
    made.add_row("pass", *(f"{row['pass_ms']:.2f}" for row in figures.values()), "")
    for name in WAYS:
        shares = ", ".join(f"{row['share_of_pass'][name]:.1%}" for row in figures.values())
        made.add_row(name, *(f"{row['ms'][name]:.3f}" for row in figures.values()), shares)
    return made


def main() -> int:
    """Measures, prints, stores; 1 where the limit is passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--dtypes", default="bfloat16", help="separated by commas")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS / "sampling.json")
    given = parser.parse_args()
    prepare()
    tokenizer = load_tokenizer(given.model)
    prompts = [tokenizer.encode(each.prompt)[:256] for each in own.interleaved(given.prompts)]
    prompts = [ids for ids in prompts if len(ids) > ROWS]
    figures: dict[str, dict[str, Any]] = {}
    for dtype in given.dtypes.split(","):
        model = load_model(given.model, dtype=dtype)
        figures[dtype] = measure(model, prompts, given.repeats)
    console = Console()
    console.print(table(figures))
    run = {
        "model": model.name,
        "vocabulary": model.vocab_size,
        "rows": ROWS,
        "prompts": len(prompts),
        "repeats": given.repeats,
        "threads": torch.get_num_threads(),
        **provenance.facts(),
    }
    document = {"run": run, "share_limit": SHARE_LIMIT, "dtypes": figures}
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    over = [dtype for dtype, row in figures.items() if row["share_of_pass"][LIMITED] > SHARE_LIMIT]
    if over:
        console.print(f"over the limit: {', '.join(over)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
