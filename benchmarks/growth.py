"""How a pass grows with its rows and its context, and how the rate grows with the streams.

    python -m benchmarks.growth [--dtypes float32 bfloat16 int8] [--repetitions 15] [--tokens 128]
        [--out FILE]

Passes of several rows behind 256 tokens of context, head included, in units of transformers' best
one-token pass of the same run (its own cache; float32 and bfloat16, eager and sdpa): all of them in
turn, medians. Then the time of a one-row pass behind 4,000 tokens over that behind 250, and tokens
a second of 8 plain streams through a whole cluster over those of one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.table import Table

from benchmarks import passes, report
from benchmarks.arrivals import steady_rate
from benchmarks.prompts import running_text
from benchmarks.report import Limit
from benchmarks.streams import Asked, Running
from outrider.cli.cluster import Cluster
from outrider.cli.processes import ClusterError
from outrider.models.hub import DEFAULT, ModelSpecError, default_target
from outrider.models.loading import load_model, load_pretrained
from outrider.models.tokenizer import load_tokenizer

ROWS = (1, 6, 12, 16, 32, 64)
CONTEXT, SHORT, LONG = 256, 250, 4000
STREAMS = 8
PROMPT = 48  # tokens of a stream's prompt
PASS_LIMITS = {
    "bfloat16": {1: 0.58, 6: 0.77, 12: 1.15},
    "int8": {1: 0.36, 6: 0.46, 12: 0.62},
}
CONTEXT_LIMIT = 1.6
STREAMS_LEAST = 3.0


def time_passes(
    dtypes: Sequence[str], text: Sequence[int], repetitions: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Median seconds of every pass, by name; and why dtypes were skipped."""
    timed: dict[str, passes.Pass] = {}
    skipped: dict[str, str] = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = load_pretrained(default_target(), dtype)
        for attention in ("sdpa", "eager"):
            name = f"transformers {str(dtype).removeprefix('torch.')} {attention}"
            timed[name] = passes.transformers_pass(model, attention, text[:CONTEXT], text[:1])
    for name in dtypes:
        try:
            own = load_model(DEFAULT, dtype=name)
        except ModelSpecError as error:
            skipped[name] = str(error)
            continue
        for rows in ROWS:
            timed[f"{name} {rows}"] = passes.own_pass(own, text[:CONTEXT], text[:rows])
        for context in (SHORT, LONG):
            timed[f"{name} at {context}"] = passes.own_pass(own, text[:context], text[:1])
    return passes.interleaved_medians(timed, repetitions), skipped


def stream_rates(dtype: str, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, float]:
    """Tokens a second of one plain stream and of all prompts at once, through a cluster.

    Raises:
        ClusterError: it does not start.
    """
    rates = {}
    with Cluster(drafters=["ngram"], dtype=dtype) as cluster:
        for count in (1, len(prompts), 1, len(prompts)):  # the first turn warms up
            asked = [Asked(prompt, tokens) for prompt in prompts[:count]]
            with Running(cluster.address, asked) as running:
                pass
            rates[str(count)] = steady_rate(running.results())
    return rates


def figures(seconds: Mapping[str, float], dtypes: Sequence[str]) -> dict[str, Any]:
    """Passes in units of transformers' best, and long contexts over short ones, by dtype."""
    unit = min(value for name, value in seconds.items() if name.startswith("transformers"))
    by_dtype = {
        dtype: {
            "passes": {str(rows): seconds[f"{dtype} {rows}"] / unit for rows in ROWS},
            "long_over_short": seconds[f"{dtype} at {LONG}"] / seconds[f"{dtype} at {SHORT}"],
        }
        for dtype in dtypes
        if f"{dtype} 1" in seconds
    }
    return {"unit_ms": unit * 1000, "dtypes": by_dtype}


def limits(by_dtype: Mapping[str, Mapping[str, Any]]) -> list[Limit]:
    """What has to hold of what was measured."""
    found = []
    for dtype, row in by_dtype.items():
        for rows, bound in PASS_LIMITS.get(dtype, {}).items():
            found.append(Limit(f"{dtype}, pass of {rows} rows", row["passes"][str(rows)], bound))
        ratio = row["long_over_short"]
        found.append(Limit(f"{dtype}, {LONG} tokens over {SHORT}", ratio, CONTEXT_LIMIT))
        rates = row.get("streams")
        if rates:
            gain = rates[str(STREAMS)] / rates["1"]
            name = f"{dtype}, {STREAMS} streams over one"
            found.append(Limit(name, gain, STREAMS_LEAST, least=True))
    return found


def table(found: Mapping[str, Any], skipped: Mapping[str, str]) -> Table:
    """Figures for people."""
    made = Table(
        "dtype",
        *(f"{rows} rows" for rows in ROWS),
        f"{LONG} over {SHORT}",
        "1 stream, tokens/s",
        f"{STREAMS} streams",
        title=f"passes in units of transformers' best, {found['unit_ms']:.1f} ms",
    )
    for dtype, row in found["dtypes"].items():
        rates = row.get("streams", {})
        made.add_row(
            dtype,
            *(f"{row['passes'][str(rows)]:.2f}" for rows in ROWS),
            f"{row['long_over_short']:.2f}",
            *(f"{rates[count]:.1f}" if count in rates else "-" for count in ("1", str(STREAMS))),
        )
    for dtype, reason in skipped.items():
        made.add_row(dtype, f"skipped: {reason}")
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a limit is passed."""
    parser = report.parser(__doc__, "growth")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "int8"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=128, help="of each stream; 0: no streams")
    given = parser.parse_args()
    torch.set_num_threads(report.keep_to(given.cores))
    # The newer name of the argument is not there in every version that the project takes.
    warnings.filterwarnings("ignore", "`past_key_values` is deprecated", FutureWarning)
    tokenizer = load_tokenizer(DEFAULT)
    text = running_text(tokenizer, LONG)
    seconds, skipped = time_passes(given.dtypes, text, given.repetitions)
    found = figures(seconds, given.dtypes)
    prompts = [running_text(tokenizer, PROMPT, start) for start in range(STREAMS)]
    for dtype, row in found["dtypes"].items():
        if given.tokens:
            try:
                row["streams"] = stream_rates(dtype, prompts, given.tokens)
            except ClusterError as error:
                skipped[f"{dtype} streams"] = str(error)
    report.console().print(table(found, skipped))
    run = {"repetitions": given.repetitions, "tokens": given.tokens, "context": CONTEXT}
    figures_stored = {
        **found,
        "skipped": skipped,
        "milliseconds": {name: value * 1000 for name, value in seconds.items()},
    }
    return report.finish(given.out, run, figures_stored, limits(found["dtypes"]))


if __name__ == "__main__":
    sys.exit(main())
