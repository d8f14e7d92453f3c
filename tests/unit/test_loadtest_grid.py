"""The grid, its log, and what is made of its cells."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from loadtest import compare, grid, report, tables
from loadtest.log import Log, append, read
from outrider.cli.prompts import read_prompts
from outrider.results import Speculation

CONFIG = {"seconds": 5, "drafters": ("ngram",), "commit": "a"}


def row(setting: str, users: int, rate: float, batch: int | None = 4) -> dict[str, Any]:
    told = Speculation("ngram", 3, 9, 4, 7, 5, 0, True, [3, 3], [2, 2])
    sample = report.Sample(0.0, 4.0, 0.5, 8, told)
    figures = {**asdict(report.summarise([sample], {})), "tokens_per_second": rate}
    return {**asdict(grid.Cell(setting, users, batch, "code")), **figures}


ROWS = [row(setting, users, users * rate) for users in (1, 2) for setting, rate in
        (("plain", 10.0), ("adaptive", 15.0))]  # fmt: skip


def test_the_grid_runs_settings_side_by_side_and_starts_a_cluster_once_a_limit() -> None:
    cells = grid.cells(("plain", "k4"), (1, 8), (1, 4), ("code", "chat"))
    assert len({cell.key for cell in cells}) == len(cells) == 16
    assert [cell.setting for cell in cells[:4]] == ["plain", "k4"] * 2
    assert [cell.batch for cell in cells] == [1] * 8 + [4] * 8
    assert len(grid.cells(**compare.FULL)) == 5 * 6 * 3 * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": ["k3"]}, "settings: 'k3', limit one of plain, k2, k4, k8, adaptive"),
        ({"kinds": ["maths"]}, "kinds: 'maths', limit one of code, chat, creative"),
        ({"users": [0]}, "users: 0, limit 1 or more"),
        ({"batches": [-1]}, "batches: -1, limit 1 or more"),
    ],
)
def test_what_the_grid_does_not_have_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid.cells(**{**compare.QUICK, **changes})


def test_settings_become_the_requests_block() -> None:
    assert grid.block("plain", "ngram") == {"n_max": 0}
    assert grid.block("k8", "ngram") == {"method": "ngram", "n_max": 8, "n_min": 8}
    assert grid.block("adaptive", "ngram") == {"method": "ngram"}
    assert grid.block("adaptive", "") is None


@pytest.mark.parametrize("kind", grid.TEMPERATURES)
def test_every_kind_has_prompts_in_chat_format(kind: str) -> None:
    prompts = read_prompts(grid.Cell("plain", 1, None, kind).prompts)
    assert len(prompts) >= 8
    assert all(prompt.chat and prompt.category == kind for prompt in prompts)


def test_a_second_call_finds_the_runs_of_the_same_configuration(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cells.jsonl"
    Log(path, CONFIG).add("one", {"tokens": 1})
    Log(path, {**CONFIG, "commit": "b"}).add("two", {"tokens": 2})
    again = Log(path, CONFIG)
    assert "one" in again
    assert "two" not in again
    assert again["one"] == {"tokens": 1}
    assert [line["key"] for line in read(path)] == ["one", "two"]


def test_a_line_that_a_kill_cut_off_costs_its_run_only(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    log = Log(path, CONFIG)
    log.add("one", {"tokens": 1})
    log.add("two", {"tokens": 2})
    whole = path.read_bytes()
    for length in range(len(whole.splitlines(keepends=True)[0]) + 1, len(whole) - 1):
        path.write_bytes(whole[:length])
        again = Log(path, CONFIG)
        assert "one" in again
        assert "two" not in again
        again.add("two", {"tokens": 3})
        assert Log(path, CONFIG)["two"] == {"tokens": 3}
        assert Log(path, CONFIG)["one"] == {"tokens": 1}


def test_a_log_without_a_file_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl") == []
    append(tmp_path / "new" / "log.jsonl", {"key": "a"})
    assert read(tmp_path / "new" / "log.jsonl") == [{"key": "a"}]


def test_results_are_written_in_every_form(tmp_path: Path) -> None:
    compare.write_results(tmp_path, {"seconds": 5}, ROWS)
    stored = json.loads((tmp_path / "grid.json").read_text())
    assert stored["run"] == {"seconds": 5}
    assert len(stored["cells"]) == 4
    with (tmp_path / "grid.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["setting"] for line in lines] == ["plain", "adaptive"] * 2
    assert lines[1]["tokens_per_second"] == "15.0"
    assert float(lines[0]["per_token_ms_p95"]) == pytest.approx(500.0)
    markdown = (tmp_path / "grid.md").read_text().splitlines()
    assert markdown[0].count("|") == markdown[1].count("|") == markdown[2].count("|")
    assert "| adaptive | 15.0 | 1.50 |" in markdown[3]


def test_pictures_are_drawn_of_every_field(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [*ROWS, *(row("adaptive", users, 3.0, None) for users in (1, 2))]
    compare.write_results(tmp_path, {}, rows)
    for name in ("throughput", "latency", "k"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_rest_is_there_and_a_word_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    compare.write_results(tmp_path, {}, ROWS)
    assert "outrider[plot]" in capsys.readouterr().err
    assert (tmp_path / "grid.csv").exists()
    assert not list(tmp_path.glob("*.png"))


def test_the_terminals_table_has_a_line_a_cell() -> None:
    assert tables.table(ROWS).row_count == len(ROWS)
