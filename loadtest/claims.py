"""`python -m loadtest.claims`: what must hold of adaptive K, measured with alternating settings.

- `users`: tokens a second and the 95th percentile of the time per token at 1, 4, 16 and 32 users,
  against the fixed setting (plain among them) that was best in the same runs (`claim_ratios.py`)
- `delay`: the same for one user with a round trip of 0, 5, 20 and 80 ms to the draft service
- `idle`: what K=0 costs beside a deployment without any draft service (`claim_idle.py`)
- `step`: how fast K follows a load step, and whether a text stalls (`claim_step.py`)

Medians of paired ratios, with intervals from order statistics (`ratios.py`). Every run is stored as
it ends, in JSON lines beside the result; a second call goes on where the first one ended, as long
as commit and options are the same. The result holds each claim's figures, limits, machine, commit
and command; `--only` replaces its own claims and leaves the others. Runs shorter than the method
asks for make a trial: it is stored elsewhere, is called so, and claims nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import RESULTS, console, limits_table
from loadtest.claim_idle import idle
from loadtest.claim_ratios import delay, users
from loadtest.claim_step import step
from loadtest.compare import open_log
from loadtest.grid import check
from loadtest.method import Measure, Outcome, Plan
from loadtest.options import Device, Drafters, Dtype, Fresh, Method, Target
from loadtest.runs import Load, Served
from outrider.cli import provenance
from outrider.cli.bars import staged
from outrider.cli.console import ending_well, err
from outrider.files import replace_json

CLAIMS: dict[str, Measure] = {"users": users, "idle": idle, "step": step, "delay": delay}
CLAIM, TRIAL = "claims", "trial"
TRIALS = Path("build/loadtest-trial.json")


def store(path: Path, plan: Plan, name: str, outcome: Outcome) -> None:
    """Puts one claim into the result file; those of the other kind, claims or trial, go."""
    kind = TRIAL if plan.shortened else CLAIM
    document: dict[str, Any] = {"kind": kind, "claims": {}}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before.get("kind") == kind:
            document = before
    judged = [{**asdict(limit), "kept": limit.kept} for limit in outcome.limits]
    document["claims"][name] = {
        "run": {
            **asdict(plan),
            **provenance.facts(),
            "shortened": plan.shortened,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        **outcome.figures,
        "limits": judged,
        # Only a claim can hold.
        **({} if plan.shortened else {"holds": outcome.holds}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_json(path, document, indent=2)


def main(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="users, idle, step or delay; repeatable")
    ] = None,
    seconds: Annotated[int, typer.Option(min=1, help="length of a run")] = 30,
    pairs: Annotated[int, typer.Option(min=1, help="runs of each setting")] = 6,
    levels: Annotated[
        list[int] | None, typer.Option("--users", min=1, help="levels of `users`; repeatable")
    ] = None,
    round_trips: Annotated[
        list[float] | None, typer.Option("--round-trip-ms", min=0, help="of `delay`; repeatable")
    ] = None,
    alternations: Annotated[int, typer.Option(min=1, help="of `idle`")] = 20,
    repeats: Annotated[int, typer.Option(min=1, help="of `step`")] = 5,
    max_tokens: Annotated[int, typer.Option(min=2, help="tokens per request")] = 64,
    method: Method = "",
    target: Target = "default",
    drafter: Drafters = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="the result; runs lie beside it")] = None,
    fresh: Fresh = False,
) -> None:
    """Measures, stores, prints; exit status 1 where a claim does not hold."""
    held = True
    with ending_well():
        names = only or list(CLAIMS)
        check("only", names, CLAIMS)
        plan = Plan(
            Load(seconds, max_tokens, method),
            Served(target, tuple(drafter) if drafter else None, dtype, device),
            pairs=pairs,
            alternations=alternations,
            repeats=repeats,
        )
        if levels:
            plan = replace(plan, users=tuple(levels))
        if round_trips:
            plan = replace(plan, round_trips_ms=tuple(round_trips))
        path = out or (TRIALS if plan.shortened else RESULTS / "loadtest.json")
        about = {**asdict(plan.load), **asdict(plan.served)}
        log = open_log(path.with_suffix(".jsonl"), about, fresh=fresh)
        for name in names:
            with staged() as show:
                outcome = CLAIMS[name](plan, log, show)
            store(path, plan, name, outcome)
            made = limits_table(outcome.limits)
            made.title = f"{name}: a trial, no claim" if plan.shortened else name
            console().print(made)
            held &= outcome.holds
    for reason in plan.shortened:
        err().print(f"shorter than a claim asks for: {reason}")
    console().print(f"stored in {path}")
    if not held and not plan.shortened:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
