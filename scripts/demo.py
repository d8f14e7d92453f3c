"""The main job: a cluster on this machine, one prompt with and without speculation, the texts
compared.

Exit status 1 where a text with speculation is not the text that the target writes alone.
"""

from __future__ import annotations

import time
from functools import partial

import typer
from rich.console import Console
from rich.table import Table

from outrider import Client
from outrider.cli.cluster import Cluster
from outrider.cli.console import ending_well
from outrider.results import GenerationResult

PROMPT = (
    "The farmer had a dog, a cat and a goat. The dog slept in the yard, the cat slept in the barn, "
    "and the goat slept wherever the goat wanted to sleep. One morning, the dog"
)
TOKENS = 64


def timed(client: Client, speculative: dict[str, object]) -> tuple[GenerationResult, float]:
    """One greedy generation and its tokens per second."""
    started = time.perf_counter()
    result = client.generate(PROMPT, max_tokens=TOKENS, temperature=0.0, speculative=speculative)
    return result, len(result.token_ids) / (time.perf_counter() - started)


def row(
    result: GenerationResult, rate: float, plain: GenerationResult, plain_rate: float
) -> list[str]:
    """Cells behind the method and K; accepted is out of drafted, length is tokens per round."""
    spec = result.speculation
    same = "yes" if result.token_ids == plain.token_ids and result.text == plain.text else "NO"
    return [
        f"{rate:.1f}",
        f"{rate / plain_rate:.2f}x",
        str(spec.rounds),
        f"{spec.accepted}/{spec.drafted}",
        f"{spec.acceptance_length:.2f}" if spec.rounds else "-",
        same,
    ]


def demo(client: Client, console: Console) -> bool:
    """Whether all texts are the same, and every drafter drafted."""
    info = client.info()
    off: dict[str, object] = {"n_max": 0}
    timed(client, off)  # first use of the kernels
    plain, plain_rate = timed(client, off)
    table = Table(title=f"{info.model.name}, {info.model.numerics.label}, {TOKENS} greedy tokens")
    for column in ("method", "K", "tokens/s", "speed-up", "rounds", "accepted", "length", "same"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    table.add_row("plain", "0", *row(plain, plain_rate, plain, plain_rate))
    good = True
    for method in info.methods:
        depth = info.recommended_depths.get(method) or 4
        result, rate = timed(client, {"method": method, "n_max": depth, "n_min": depth})
        table.add_row(method, str(depth), *row(result, rate, plain, plain_rate))
        if result.token_ids != plain.token_ids or result.text != plain.text:
            good = False
            console.print(f"[red]{method} wrote another text:[/red]", result.text, markup=True)
        if result.speculation.drafted == 0:
            good = False
            console.print(f"[red]{method} drafted nothing[/red]")
    console.print(PROMPT, style="dim", end="", markup=False, highlight=False)
    console.print(plain.text, markup=False, highlight=False)
    console.print()
    console.print(table)
    return good


def main() -> None:
    """Starts the cluster, compares, stops it; exit status 1 where a text differs."""
    console = Console()
    say = partial(console.print, style="dim")
    with ending_well():
        with Cluster(dtype="float32", say=say) as cluster, Client(cluster.address) as client:
            good = demo(client, console)
        console.print(
            "All texts are the same." if good else "[red]Something is wrong, see above.[/red]"
        )
    if not good:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
