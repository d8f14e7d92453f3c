"""`outrider plan`: its figures, its reasons, its drawing, and a running deployment's numbers."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app
from outrider.cli.plan import Plan
from outrider.v1 import orchestrator_pb2
from tests.contract.fake_orchestrator import FakeOrchestrator


def run(*flags: str) -> str:
    result = CliRunner().invoke(app, ["plan", *flags], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_four_drafts_at_0_8_are_2_36_accepted_and_3_36_tokens_a_pass() -> None:
    assert "2.36 3.36" in run("--acceptance", "0.8", "--k", "4", "--batch", "1")


def test_best_k_is_that_of_the_table_where_rows_are_free() -> None:
    flat = Plan(draft_cost=0.05, row_cost=0.0, batch=1, overhead=0.0)
    assert flat.best(0.8, 16) == 8
    assert flat.speed_up(0.8, 8) == pytest.approx(3.09, abs=0.005)


def test_a_larger_batch_has_a_smaller_best_k() -> None:
    best = [Plan(0.05, 0.05, batch, 0.0).best(0.8, 16) for batch in (1, 8, 64)]
    assert best == sorted(best, reverse=True)
    assert best[0] > best[-1]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--draft-cost", "0.9"], "most of it is the draft"),
        (["--row-cost", "0.5", "--batch", "32"], "most of it is the rows"),
        (["--rtt-ms", "40", "--draft-cost", "0.01"], "most of it is the round trip"),
    ],
)
def test_where_it_hurts_it_says_why(flags: list[str], reason: str) -> None:
    told = run("--acceptance", "0.3", "--batch", "1", *flags)
    assert "speculation hurts" in told
    assert reason in told
    assert "0 (1.00)" in told


def test_plan_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plan.png"
    run("--plot", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--acceptance", "1.2"], "acceptance: 1.2, limit 0 to 1"),
        (["--acceptance", "x"], "acceptance: 'x', limit a number"),
        (["--batch", "0"], "batch: '0', limit whole numbers from 1 to 4096"),
        (["--k", "129"], "k: '129', limit whole numbers from 1 to 128"),
    ],
)
def test_what_does_not_fit_is_refused(flags: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["plan", *flags])
    assert result.exit_code == 1
    assert told in result.output


def test_live_takes_what_the_deployment_has_measured(fake: FakeOrchestrator, address: str) -> None:
    told = CliRunner().invoke(app, ["plan", "--live", address])
    assert told.exit_code == 1
    assert "was not measured" in told.output
    entry = orchestrator_pb2.Measured(
        method="eagle",
        acceptance=[0.8, 0.8],
        draft_step_us=1_000,
        draft_wire_us=500,
        target_wire_us=500,
        pass_us=20_000,
        row_us=400,
    )
    fake.measured.append(entry)
    out = run("--live", address, "--k", "4", "--batch", "1")
    assert "measured of eagle: acceptance 0.80, a draft step 0.05" in out
    assert "2.36 3.36" in out
