"""What a proposal of the trained drafters costs, in units of the target's pass over one token.

    python -m benchmarks.draft_cost [--rounds 60] [--dtype bfloat16] [--drafter NAME=PATH]
        [--out FILE]

One process, one text: in turn a target pass over one token, then from each drafter a chain of four
with that token and its features known. Medians; a drafter's catching up with the token is part of
its proposal.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.progress import track
from rich.table import Table
from torch import Tensor

from benchmarks import report
from benchmarks.prompts import running_text
from benchmarks.report import Limit
from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup
from draft_service.vocabulary import vocabulary_of
from outrider.core.round import Budget, Features, SamplingParams
from outrider.drafting.base import Drafter
from outrider.drafting.specs import default_specs
from outrider.models.causal_lm import Segment
from outrider.models.hub import DEFAULT
from outrider.models.loading import load_model
from outrider.models.tokenizer import load_tokenizer

CONTEXT = 256
DEPTH = 4
LIMITS = {"eagle": 0.30, "medusa": 0.10}
METHODS = ("eagle", "medusa", "draft_model")

Step = Callable[[int, dict[int, Tensor]], None]
"""Takes the token at a position, and the features up to it by tap; proposes."""


def proposing(drafter: Drafter, text: Sequence[int]) -> Step:
    """Rounds of a drafter along a text."""
    session = drafter.open(text[:CONTEXT], SamplingParams(temperature=0.0))
    taps = () if drafter.features is None else drafter.features.taps

    def step(position: int, tapped: dict[int, Tensor]) -> None:
        """Features of the positions before it come with the token."""
        sent = []
        if taps:
            rows = torch.cat([tapped[tap] for tap in taps], dim=-1)
            data = rows.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
            sent.append(Features(position - len(rows), len(rows), rows.shape[1], data))
        drafter.observe(session, [text[position]], sent)
        (proposal,) = drafter.propose([(session, Budget(DEPTH, DEPTH))])
        if proposal.tree.drafted != DEPTH:
            raise RuntimeError(f"{drafter.method}: drafted {proposal.tree.drafted} of {DEPTH}")

    return step


def measure(dtype: str, specs: Sequence[str], rounds: int) -> dict[str, float]:
    """Median milliseconds of a pass and of each drafter's proposal."""
    target = load_model(DEFAULT, dtype=dtype)
    setup = Setup(DEFAULT, vocabulary_of(DEFAULT), dtype)
    text = running_text(load_tokenizer(DEFAULT), CONTEXT + rounds + 1)
    drafters = [build_drafter(spec, setup) for spec in specs]
    steps = {drafter.method: proposing(drafter, text) for drafter in drafters}
    wanted = {tap for d in drafters if d.features is not None for tap in d.features.taps}
    taps = sorted(wanted)
    cache = target.new_cache()
    seconds: dict[str, list[float]] = {name: [] for name in ("pass", *steps)}
    fed = 0
    turns = range(CONTEXT, CONTEXT + rounds)
    for position in track(turns, console=report.progress_console(), transient=True):
        started = time.perf_counter()
        out = target.forward([Segment.chain(cache, text[fed:position])], taps)
        target.logits(out.states[-1:])
        seconds["pass"].append(time.perf_counter() - started)
        fed = position
        parts = [] if out.taps is None else out.taps.float().chunk(len(taps), dim=-1)
        tapped = dict(zip(taps, parts, strict=True))
        for name, step in steps.items():
            started = time.perf_counter()
            step(position, tapped)
            seconds[name].append(time.perf_counter() - started)
    # The first turn has the whole context.
    return {name: 1000 * statistics.median(each[1:]) for name, each in seconds.items()}


def table(medians: dict[str, float]) -> Table:
    """Figures for people."""
    made = Table("", "ms", "of a pass")
    for name, value in medians.items():
        made.add_row(name, f"{value:.2f}", f"{value / medians['pass']:.1%}")
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a limit is missed."""
    parser = report.parser(__doc__, "draft_cost")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--drafter", action="append", help="NAME or NAME=PATH; default: all")
    given = parser.parse_args()
    torch.set_num_threads(report.keep_to(given.cores))
    shipped = [method for method in METHODS if method in default_specs(DEFAULT)]
    medians = measure(given.dtype, given.drafter or shipped, given.rounds)
    report.console().print(table(medians))
    shares = {name: value / medians["pass"] for name, value in medians.items() if name != "pass"}
    limits = [
        Limit(f"{name}, {DEPTH} tokens, of a pass", shares[name], bound)
        for name, bound in LIMITS.items()
        if name in shares
    ]
    run: dict[str, Any] = {"dtype": given.dtype, "depth": DEPTH, "context": CONTEXT}
    return report.finish(given.out, run, {"ms": medians, "of_a_pass": shares}, limits)


if __name__ == "__main__":
    sys.exit(main())
