"""`outrider models` on tiny models."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import torch
from transformers.models.bert import BertConfig
from typer.testing import CliRunner

from outrider.cli.models import app
from outrider.models import hub
from outrider.models.inspection import inspect_model
from outrider.models.linear import packing_available
from outrider.models.loading import load_model
from outrider.models.loss import DTYPES
from tests.tiny import save_tiny

packed = pytest.mark.skipif(
    not packing_available(torch.bfloat16, torch.device("cpu")),
    reason="this processor has no packed linears",
)


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


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama", "generic: its heads are 8 wide, not a multiple of 16"),
        ("gpt2", "generic: family gpt2 is not one of llama, mistral, qwen2, qwen3"),
    ],
)
def test_inspect_says_which_decoder_serves_a_model_and_why(
    family: str, expected: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path / family, family)
    assert expected in run("inspect", str(tmp_path / family))


def test_inspect_names_what_keeps_a_model_out(tmp_path: Path) -> None:
    save_tiny(tmp_path / "gemma", "gemma3")
    file = tmp_path / "gemma" / "config.json"
    config = json.loads(file.read_text())
    config["use_bidirectional_attention"] = True
    file.write_text(json.dumps(config))
    assert "none: gemma3_text attends in both directions" in run("inspect", str(file.parent))


@packed
def test_inspect_says_lean_for_a_llama_of_wide_heads(tmp_path: Path) -> None:
    save_tiny(tmp_path / "wide", hidden=64)
    assert "lean: family llama" in run("inspect", str(tmp_path / "wide"))


@packed
def test_inspect_tells_the_loss_of_each_dtype_where_it_is_asked_to(target: Path) -> None:
    assert "mean loss" not in run("inspect", "default")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in run("inspect", "default", "--int8-loss").splitlines()
    ]
    loss = {row[0]: float(row[1]) for row in rows if row and row[0] in DTYPES}
    above = {row[0]: row[2] for row in rows if row and row[0] in DTYPES}
    assert set(loss) == set(DTYPES)
    assert above["float32"] == ""
    assert float(above["int8"]) == pytest.approx(loss["int8"] - loss["float32"], abs=2e-4)
    assert loss["int8"] != loss["float32"]


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


def test_inspect_calls_no_encoder_a_decoder(tmp_path: Path) -> None:
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    save_tiny(tmp_path / "bert", layers=1)  # its tokenizer
    BertConfig(**shape, num_attention_heads=4).save_pretrained(tmp_path / "bert")
    shown = run("inspect", str(tmp_path / "bert"))
    assert "none: BertSelfAttention attends in both directions" in shown


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole", "qwen2").save_pretrained(tmp_path / "bare")
    assert "has no vocabulary" in run("inspect", str(tmp_path / "bare"), status=1)
    with pytest.raises(hub.ModelSpecError, match="has no vocabulary, its files are missing"):
        load_model(str(tmp_path / "bare"), dtype="float32")
