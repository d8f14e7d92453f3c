"""What a long prompt does to the streams that are running when it arrives.

    python -m benchmarks.stall [--streams 1 4] [--prompt-tokens 2000] [--dtype auto]
        [--method plain] [--runs 5] [--out FILE]

For each number of streams: they run until each has some tokens, then a long prompt is sent.
`median` is the median gap between a stream's arrivals before the prompt was sent, `largest` its
largest gap while the prompt was prefilled, that is until its own first token; `ratio` is the one
over the other. The worst stream of a run counts, and the median of all runs: a largest gap has the
machine's own hiccups in it, so that one run says little.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks import report
from benchmarks.arrivals import Arrivals
from benchmarks.prompts import running_text
from benchmarks.streams import Asked, Running, record
from outrider import Client
from outrider.cli.cluster import Cluster
from outrider.cli.door import speculative
from outrider.models.tokenizer import load_tokenizer

RATIO_LIMIT = 3.0
PROMPT = 64  # tokens of a running stream's prompt
BEFORE = 48  # tokens that a stream has when the long prompt is sent
MS = 1000.0


class TooShort(Exception):
    """A stream ended before the long prompt was prefilled; it needs more tokens."""


def gaps_around(stream: Arrivals, sent: float, answered: float) -> dict[str, float]:
    """The gaps of one stream before the long prompt was `sent` and until it was `answered`.

    The first gap that ends behind `answered` still counts as within: its tokens waited, too.

    Raises:
        TooShort: the stream ended before.
    """
    before = [gap for ended, gap in stream.gaps() if ended <= sent]
    within = [gap for ended, gap in stream.gaps() if sent < ended <= answered]
    behind = [gap for ended, gap in stream.gaps() if ended > answered]
    if not before or not behind:
        raise TooShort(f"tokens: a stream of {len(stream.ids)} ended too early; ask for more")
    median, largest = statistics.median(before), max([*within, behind[0]])
    return {"median_ms": median * MS, "largest_ms": largest * MS, "ratio": largest / median}


def measure(
    cluster: Cluster, streams: Sequence[Asked], long: Asked
) -> tuple[list[dict[str, float]], float]:
    """Gaps of every stream, and the seconds to the long prompt's first token."""
    with Client(cluster.address) as client, Running(cluster.address, streams, BEFORE) as running:
        running.wait()
        arrived = record(client, long)
    sent, answered = arrived.started, arrived.times[0]
    rows = [gaps_around(each, sent, answered) for each in running.results()]
    return rows, arrived.first_token_s


def worst(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The stream of a run that was held up most."""
    return max(rows, key=lambda row: row["ratio"])


def middle(cell: dict[str, Any]) -> float:
    """The median over a cell's runs of the worst stream's ratio."""
    return statistics.median(worst(each["streams"])["ratio"] for each in cell["runs"])


def table(cells: Sequence[dict[str, Any]]) -> Table:
    """Figures for people: the worst stream of each run."""
    made = Table("streams", "median gap, ms", "largest gap, ms", "ratio", "long prompt took, s")
    for cell in cells:
        for each in cell["runs"]:
            row = worst(each["streams"])
            made.add_row(
                str(cell["count"]),
                f"{row['median_ms']:.1f}",
                f"{row['largest_ms']:.1f}",
                f"{row['ratio']:.2f}",
                f"{each['long_first_token_s']:.2f}",
            )
    return made


def main() -> int:
    """Measures, prints, stores; 1 where a ratio is above the limit."""
    parser = report.parser(__doc__, "stall")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=512, help="of each running stream")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--method", default="plain", help="plain, or a drafter")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    report.keep_to(given.cores)
    drafter = "ngram" if given.method == "plain" else given.method
    block = speculative(given.method, None) or {}
    tokenizer = load_tokenizer("default")
    cells: list[dict[str, Any]] = []
    with Cluster(drafters=[drafter], dtype=given.dtype) as cluster:
        with Client(cluster.address) as client:
            record(client, Asked(running_text(tokenizer, PROMPT), 8, block))  # warms up
            dtype = client.info().model.numerics.label
        turns = itertools.count(7)
        for count in given.streams:
            runs = []
            for _ in range(given.runs):
                asked = [
                    Asked(running_text(tokenizer, PROMPT, start), given.tokens, block)
                    for start in range(count)
                ]
                # Another start a run: the run before must not have left a prefix of it.
                text = running_text(tokenizer, given.prompt_tokens, next(turns))
                rows, seconds = measure(cluster, asked, Asked(text, 4, block))
                runs.append({"streams": rows, "long_first_token_s": seconds})
            cells.append({"count": count, "runs": runs})
    report.console().print(table(cells))
    run = {
        "dtype": dtype,
        "method": given.method,
        "prompt_tokens": given.prompt_tokens,
        "tokens": given.tokens,
    }
    limits = [
        report.Limit(f"largest gap over median, {cell['count']} streams", middle(cell), RATIO_LIMIT)
        for cell in cells
    ]
    return report.finish(given.out, run, {"cells": cells}, limits)


if __name__ == "__main__":
    sys.exit(main())
