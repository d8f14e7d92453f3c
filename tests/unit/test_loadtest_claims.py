"""What decides whether a claim holds, from runs made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.arrivals import Arrivals
from benchmarks.report import Limit
from loadtest import claim_idle, claim_ratios, claim_step, claims
from loadtest.grid import SETTINGS
from loadtest.log import Log
from loadtest.method import Outcome, Plan
from loadtest.runs import Load
from loadtest.steps import Depths, Step
from scripts import readme_table

PLAN = Plan(Load(30, 64, "ngram"))
RATES = {"plain": 10.0, "k2": 14.0, "k4": 12.0, "k8": 5.0, "adaptive": 15.0}


def silent(stage: str, done: float, total: float, note: str = "") -> None:
    pass


def stored(path: Path, rates: dict[str, float], claim: str, users: tuple[int, ...]) -> Log:
    """A log with every run of a claim."""
    log = Log(path, {})
    for count in users:
        for turn in range(PLAN.pairs):
            for setting in SETTINGS:
                rate = rates[setting] * (1 + 0.01 * turn)
                run = {
                    "tokens": 30 * rate,
                    "window_s": 30.0,
                    "tokens_per_second": rate,
                    "per_token_ms": {"p50": 1e3 / rate, "p95": 1.5e3 / rate},
                    "k": 3.0,
                    "failures": 0,
                }
                log.add(f"{claim}/users{count}/turn{turn}/{setting}", run)
    return log


def test_users_holds_where_adaptive_wins_and_no_run_is_repeated(tmp_path: Path) -> None:
    log = stored(tmp_path / "log", RATES, "users", PLAN.users)
    outcome = claim_ratios.users(PLAN, log, silent)  # starts nothing: all runs are there
    assert outcome.holds
    assert outcome.figures["4"]["reference"] == "k2"
    assert outcome.figures["1"]["over_plain"]["median"] == pytest.approx(1.5)
    assert len(outcome.limits) == 4 * 4 + 2


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"adaptive": 13.4}, "tokens/s over k2"),
        ({"plain": 11.0}, "adaptive over plain, 1 user"),
        ({"k8": 13.9}, "K=8 over k2, 32 users"),
        ({"k8": 15.0}, "K=8 over k8, 32 users"),
    ],
)
def test_users_fails_where_a_part_of_it_does_not_hold(
    changes: dict[str, float], missed: str, tmp_path: Path
) -> None:
    log = stored(tmp_path / "log", {**RATES, **changes}, "users", PLAN.users)
    outcome = claim_ratios.users(PLAN, log, silent)
    assert any(limit.name.startswith(missed) and not limit.kept for limit in outcome.limits)


def test_delay_judges_every_round_trip(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", {})
    for trip in PLAN.round_trips_ms:
        log = stored(tmp_path / "log", RATES, f"delay {trip:g} ms", (1,))
    outcome = claim_ratios.delay(PLAN, log, silent)
    assert outcome.holds
    assert list(outcome.figures) == ["0 ms", "5 ms", "20 ms", "80 ms"]


@pytest.mark.parametrize(("cost", "holds"), [(0.5, True), (1.5, False)])
def test_idle_is_the_median_cost_in_per_cent(cost: float, holds: bool, tmp_path: Path) -> None:
    log = Log(tmp_path / "log", {})
    for turn in range(PLAN.alternations):
        noise = (turn % 5 - 2) / 1000
        log.add(f"idle/{turn}", {"with": 50.0, "without": 50.0 * (1 + cost / 100 + noise)})
    outcome = claim_idle.idle(PLAN, log, silent)
    assert outcome.holds is holds
    assert outcome.figures["cost_percent"]["median"] == pytest.approx(cost)


def stepping(lag_up: float, lag_down: float, stall: float = 0.1, k: float = 4.0) -> Step:
    """K is `k` alone and 0 in the crowd, so late; texts arrive each 0.1 s, once after `stall`."""
    depths, total = [], 0.0
    for tick in range(300):
        at = tick / 10
        crowded = 10 + lag_up <= at < 20 + lag_down
        total += 0.0 if crowded else 10 * k
        depths.append(Depths(at, 10.0 * (tick + 1), total))
    text = Arrivals(9.0)
    at = 9.0
    while at < 21:
        text.times.append(at)
        text.counts.append(1)
        at += stall if 11.95 <= at < 12.05 else 0.1
    return Step(0.0, 10.0, 20.0, 30.0, depths, [text])


def test_a_step_that_k_follows_at_once_holds() -> None:
    found = claim_step.judge(stepping(0.4, 0.7, stall=0.25))
    assert (found["k_alone"], found["k_crowd"], found["k_again"]) == pytest.approx((4, 0, 4))
    assert 0.35 <= found["fall_s"] <= 0.7
    assert 0.65 <= found["return_s"] <= 1.0
    assert found["stall"] == pytest.approx(2.5, abs=0.05)
    assert claim_step.outcome([found]).holds


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        (stepping(1.5, 0.1), "K falls within, s"),
        (stepping(0.1, 4.0), "K is back within, s"),
        (stepping(0.1, 0.1, stall=0.5), "longest gap over median round"),
        (stepping(0.1, 0.1, k=0.0), "K falls by"),
    ],
)
def test_a_step_that_k_follows_late_or_never_does_not(seen: Step, missed: str) -> None:
    outcome = claim_step.outcome([claim_step.judge(seen)])
    assert [limit.name for limit in outcome.limits if not limit.kept] == [missed]


def test_a_text_that_never_arrives_in_the_crowd_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for longer runs"):
        claim_step.judge(replace(stepping(0.1, 0.1), texts=[]))


OUTCOME = Outcome({"cost_percent": {"median": 0.2}}, [Limit("cost", 0.2, 1.0)])


def test_claims_are_stored_one_beside_the_other_and_trials_claim_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results" / "loadtest.json"
    claims.store(path, PLAN, "idle", OUTCOME)
    claims.store(path, PLAN, "step", Outcome({}, [Limit("stall", 4.0, 3.0)]))
    document = json.loads(path.read_text())
    assert document["kind"] == "claims"
    assert {name: claim["holds"] for name, claim in document["claims"].items()} == {
        "idle": True,
        "step": False,
    }
    assert set(document["claims"]["idle"]["run"]) >= {"machine", "commit", "command_line", "load"}
    claims.store(path, replace(PLAN, pairs=2), "idle", OUTCOME)
    document = json.loads(path.read_text())
    assert document["kind"] == "trial"
    assert list(document["claims"]) == ["idle"]
    assert "holds" not in document["claims"]["idle"]
    assert document["claims"]["idle"]["run"]["shortened"] == ["pairs: 2, at least 5"]


def test_a_part_of_the_levels_is_a_trial() -> None:
    assert replace(PLAN, users=(1, 32)).shortened == ["users: 1, 32, at least 1, 4, 16, 32"]
    assert replace(PLAN, round_trips_ms=(0.0,)).shortened
    assert not replace(PLAN, users=(1, 2, 4, 16, 32)).shortened


def test_the_readmes_table_is_made_of_claims_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readme_table, "RESULTS", tmp_path)
    path = tmp_path / "loadtest.json"
    claims.store(path, PLAN, "idle", OUTCOME)
    assert "| idle | cost | 0.20 | at most 1 | yes |" in readme_table.loadtest()
    claims.store(path, replace(PLAN, pairs=2), "idle", OUTCOME)
    with pytest.raises(ValueError, match="trial"):
        readme_table.loadtest()


def command_line(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(claims.main)
    return CliRunner().invoke(app, arguments)


def test_a_claim_that_there_is_not_is_named() -> None:
    result = command_line("--only", "luck")
    assert result.exit_code == 1
    assert "only: 'luck', limit one of users, idle, step, delay" in result.output
