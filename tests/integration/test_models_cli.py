"""`outrider models` on tiny models."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli.models import app
from outrider.models import hub
from outrider.models.inspection import inspect_model
from tests.tiny import save_tiny


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tiny target in the place of the default one, in a cache of its own."""
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "300")
    return hub.build_once(hub.DEFAULT_NAME, lambda out: save_tiny(out, layers=3))


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def test_fetch_prints_where_the_model_is(target: Path) -> None:
    assert str(target) in run("fetch").splitlines()


def test_cut_makes_a_draft_model_in_the_cache_once(target: Path) -> None:
    made = hub.models_folder() / f"{hub.DEFAULT_NAME}-cut2"
    assert str(made) in run("cut", "--layers", "2").splitlines()
    assert inspect_model(str(made)).layers == 2
    before = (made / "model.safetensors").stat().st_mtime_ns
    run("cut", "--layers", "2")
    assert (made / "model.safetensors").stat().st_mtime_ns == before


def test_cut_writes_where_it_is_told_but_not_over_files(target: Path, tmp_path: Path) -> None:
    run("cut", "--layers", "1", "--target", str(target), "--out", str(tmp_path / "draft"))
    assert inspect_model(str(tmp_path / "draft")).layers == 1
    output = run("cut", "--layers", "1", "--out", str(tmp_path / "draft"), status=1)
    assert "is not an empty directory" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", "0"), "layers: 0, limit at least 1"),
        (("--layers", "9"), "layers: 9, limit 1 to 3"),
        (("--out", "/"), "out: / exists and is not an empty directory"),
    ],
)
def test_cut_refuses_its_arguments_before_it_loads_weights(
    arguments: tuple[str, ...], message: str, target: Path
) -> None:
    (target / "model.safetensors").write_bytes(b"none")
    assert message in run("cut", *arguments, status=1)


def test_models_that_we_write_are_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    run("cut", "--layers", "1", "--out", str(tmp_path / "draft"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "draft").iterdir()}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {0o666 & ~umask}


def test_list_and_inspect_show_the_facts(target: Path) -> None:
    listed = run("list")
    assert hub.DEFAULT_NAME in listed
    assert "llama" in listed
    shown = run("inspect", "default")
    assert "4 query, 2 key-value" in shown
    assert inspect_model("default").tokenizer_fingerprint in shown


def test_list_of_an_empty_cache_says_how_to_fill_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "empty"))
    assert "outrider models fetch" in run("list")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["inspect", "/nowhere/model"],
            "model '/nowhere/model': there is no such directory or file",
        ),
        (["cut", "--layers", "9"], "layers: 9, limit 1 to 3"),
    ],
)
def test_nonsense_ends_with_one_line_and_status_1(arguments: list[str], message: str) -> None:
    assert f"error: {message}" in run(*arguments, status=1)
