"""`outrider plan`: whether speculation pays, for which K, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli.console import ending_well, err, out
from outrider.cli.door import Ca, Insecure, Token
from outrider.cli.live import Measured, measured
from outrider.core.speedup import best_k, expected_accepted, expected_tokens, improvement


@dataclass(frozen=True)
class Plan:
    """What a deployment costs, in units of a target pass of one row unless a name says otherwise.

    draft_cost: of one draft step. row_cost: of a further row in a pass. batch: sessions in a step.
    overhead: of a round, the round trips among it.
    """

    draft_cost: float
    row_cost: float
    batch: int
    overhead: float

    def verify_cost(self, rows: int) -> float:
        """v(rows) of each session, `batch` of them in the step."""
        return 1.0 + self.row_cost * (self.batch * rows - 1)

    def speed_up(self, acceptance: float, k: int) -> float:
        """S(K): tokens a second over those of plain decoding."""
        if k == 0:
            return 1.0
        # In units of the plain step, which grows with the batch too.
        step = self.verify_cost(1)
        return improvement(
            acceptance, k, self.draft_cost / step, self.verify_cost, self.overhead / step
        )

    def best(self, acceptance: float, most: int) -> int:
        """The K of 0..most with the greatest S(K)."""
        step = self.verify_cost(1)
        return best_k(
            acceptance, self.draft_cost / step, self.verify_cost, self.overhead / step, most
        )

    def why_not(self, acceptance: float) -> str:
        """Why K=0 is best: the greatest part of what a drafted token costs beyond its worth."""
        step = self.verify_cost(1)
        parts = {
            "the draft": self.draft_cost / step,
            "the rows that it adds to a step": (self.verify_cost(2) - step) / step,
            "the round trip": self.overhead / step,
        }
        name, cost = max(parts.items(), key=lambda part: part[1])
        return (
            f"one drafted token costs {sum(parts.values()):.2f} passes and brings "
            f"{acceptance:.2f}; most of it is {name} ({cost:.2f})"
        )


def plan(
    acceptance: Annotated[
        str, typer.Option(help="Chance that a drafted token is kept; several by commas.")
    ] = "0.4,0.5,0.6,0.7,0.8,0.9",
    draft_cost: Annotated[
        float, typer.Option(min=0, help="One draft step over a target pass of one row.")
    ] = 0.1,
    row_cost: Annotated[
        float, typer.Option(min=0, help="A further row in a pass over a pass of one row.")
    ] = 0.02,
    batch: Annotated[
        str, typer.Option(help="Sessions in a step of the target; several by commas.")
    ] = "1,8,32",
    rtt_ms: Annotated[float, typer.Option(min=0, help="Round trips of a round, ms.")] = 0.0,
    pass_ms: Annotated[float, typer.Option(min=0.001, help="A target pass of one row, ms.")] = 20.0,
    k: Annotated[str, typer.Option("--k", help="Depths; several by commas.")] = "1,2,4,8",
    live: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of an orchestrator: costs and acceptance from there."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="With --live: the drafter.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a drawing (PNG).")] = None,
    token: Token = None,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Say what speculation would bring: tokens per pass, speed-up and best K."""
    with ending_well():
        depths = _whole("k", k, 1, 128)
        batches = _whole("batch", batch, 1, 4096)
        rates = _rates(acceptance)
        if live is not None:
            found: Measured = measured(live, method, token, ca, insecure, err().print)
            draft_cost, row_cost, pass_ms = found.draft_cost, found.row_cost, found.pass_ms
            rtt_ms, rates = found.rtt_ms, [found.acceptance]
            out().print(found.describe())
        plans = [Plan(draft_cost, row_cost, size, rtt_ms / pass_ms) for size in batches]
        out().print(tokens_table(rates, depths))
        for each in plans:
            out().print(speed_table(each, rates, depths))
            for rate in rates:
                if each.best(rate, max(depths)) == 0:
                    out().print(f"  acceptance {rate:g}: speculation hurts; {each.why_not(rate)}")
        if plot is not None:
            from outrider.cli.plot import draw  # matplotlib is an optional extra

            draw(plot, plans, rates, max(depths))


def tokens_table(rates: Sequence[float], depths: Sequence[int]) -> Table:
    """Accepted drafts and tokens per pass; costs play no part in them."""
    made = Table(
        "acceptance", *(f"K={depth}" for depth in depths), title="accepted, tokens per pass"
    )
    for rate in rates:
        cells = [f"{expected_accepted(rate, n):.2f} {expected_tokens(rate, n):.2f}" for n in depths]
        made.add_row(f"{rate:g}", *cells)
    return made


def speed_table(plan: Plan, rates: Sequence[float], depths: Sequence[int]) -> Table:
    """Speed-up over plain decoding, and the best K up to the greatest asked for."""
    made = Table(
        "acceptance",
        *(f"K={depth}" for depth in depths),
        "best K",
        title=f"speed-up at {plan.batch} session{'s' * (plan.batch > 1)} a step",
    )
    for rate in rates:
        best = plan.best(rate, max(depths))
        cells = [f"{plan.speed_up(rate, depth):.2f}" for depth in depths]
        made.add_row(f"{rate:g}", *cells, f"{best} ({plan.speed_up(rate, best):.2f})")
    return made


def _rates(text: str) -> list[float]:
    rates = []
    for part in text.split(","):
        try:
            rates.append(float(part))
        except ValueError:
            raise ValueError(f"acceptance: {part!r}, limit a number from 0 to 1") from None
        if not 0.0 <= rates[-1] <= 1.0:
            raise ValueError(f"acceptance: {part}, limit 0 to 1")
    return rates


def _whole(name: str, text: str, least: int, most: int) -> list[int]:
    numbers = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not least <= int(part) <= most:
            raise ValueError(f"{name}: {part!r}, limit whole numbers from {least} to {most}")
        numbers.append(int(part))
    return numbers
