"""What a long prompt does to the streams that are running when it arrives.

    python -m benchmarks.stall [--streams 1 4] [--prompt-tokens 2000] [--dtype auto]
        [--method plain] [--out FILE]

For each number of streams: they run until each has some tokens, then a long prompt is sent.
`median` is the median gap between a stream's arrivals before the prompt was sent, `largest` its
largest gap while the prompt was prefilled, that is until its own first token; `ratio` is the one
over the other. The worst stream counts.
"""

from __future__ import annotations

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


def table(cells: Sequence[dict[str, Any]]) -> Table:
    """Figures for people: the worst stream of each cell."""
    made = Table("streams", "median gap, ms", "largest gap, ms", "ratio", "long prompt took, s")
    for cell in cells:
        worst = max(cell["streams"], key=lambda row: row["ratio"])
        made.add_row(
            str(len(cell["streams"])),
            f"{worst['median_ms']:.1f}",
            f"{worst['largest_ms']:.1f}",
            f"{worst['ratio']:.2f}",
            f"{cell['long_first_token_s']:.2f}",
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
        for turn, count in enumerate(given.streams):
            asked = [
                Asked(running_text(tokenizer, PROMPT, start), given.tokens, block)
                for start in range(count)
            ]
            # Another start a cell: the cell before must not have left a prefix of it.
            long = Asked(running_text(tokenizer, given.prompt_tokens, 7 + turn), 4, block)
            rows, seconds = measure(cluster, asked, long)
            cells.append({"streams": rows, "long_first_token_s": seconds})
    report.console().print(table(cells))
    run = {
        "dtype": dtype,
        "method": given.method,
        "prompt_tokens": given.prompt_tokens,
        "tokens": given.tokens,
    }
    limits = [
        report.Limit(
            f"largest gap over median, {len(cell['streams'])} streams",
            max(row["ratio"] for row in cell["streams"]),
            RATIO_LIMIT,
        )
        for cell in cells
    ]
    return report.finish(given.out, run, {"cells": cells}, limits)


if __name__ == "__main__":
    sys.exit(main())
