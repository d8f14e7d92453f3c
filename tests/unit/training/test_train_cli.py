"""`outrider train` from prompts to a checkpoint that other software reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from outrider.cli.main import app
from tests.tiny import save_tiny, tiny_tokenizer


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code != 0
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny target, and data of it."""
    folder = tmp_path_factory.mktemp("train")
    model, data, prompts = folder / "model", folder / "data", folder / "prompts.jsonl"
    save_tiny(model, layers=3)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}w10 {{ m['content'] }} w11 {% endfor %}"
        "{% if add_generation_prompt %}w12{% endif %}"
    )
    tokenizer.save_pretrained(model)
    lines = [{"question": f"w{n % 50} w{(n * 7) % 50} w{n // 50}"} for n in range(80)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    told = invoke("data", "--data", data, "--prompts", prompts, "--target", model, "--slots", 16,
                  "--max-tokens", 24)  # fmt: skip
    assert "80 texts" in told
    return model, data


def test_texts_become_each_drafter_and_its_open_form(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    model, data = made
    common = ["--data", data, "--target", model, "--draft-vocab-size", 40]
    assert "all" in invoke("vocabulary", *common)
    for method in ("draft_model", "eagle", "medusa"):
        run = tmp_path / method
        features = ["--features", tmp_path / f"features-{method}"]
        budget = ["--steps", 6, "--evaluations", 2]
        form = ["--no-root-embedding"] if method == "medusa" else []  # the others' own
        arguments = [method, *common, *features, *budget, *form, "--out", run]
        told = invoke(*arguments)
        assert "acceptance length" in told
        assert told == invoke(*arguments)  # finished: nothing is trained again
        document = json.loads((run / "report.json").read_text())
        assert document["method"] == method
        assert 0 < document["coverage"]["all"] <= 1
        assert "chain 4" in invoke("report", run)
        assert method in invoke("export", run, "--out", tmp_path / f"open-{method}",
                                "--target", model)  # fmt: skip
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "open-draft_model").float()
    assert whole.config.num_hidden_layers == 3
    target = AutoModelForCausalLM.from_pretrained(model)
    text = target.generate(torch.tensor([[10, 3, 11, 12]]), assistant_model=whole, max_new_tokens=8)
    assert text.shape[1] > 4


def test_a_training_may_begin_with_anothers_weights(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    model, data = made
    place = ["--data", data, "--target", model, "--features", tmp_path / "features"]
    common = ["medusa", *place, "--steps", 1, "--draft-vocab-size", 40, "--lr", 1e-9]
    invoke(*common[:-2], "--lr", 0.1, "--out", tmp_path / "first")
    invoke(*common, "--out", tmp_path / "second", "--start", tmp_path / "first")
    states = [
        torch.load(tmp_path / run / "state.pt", weights_only=True)["parameters"]
        for run in ("first", "second")
    ]
    assert all(torch.allclose(states[0][name], states[1][name]) for name in states[0])
    assert any(bool(tensor.abs().max() > 1e-3) for tensor in states[1].values())


@pytest.mark.parametrize("method", ["draft_model", "eagle", "medusa"])
def test_a_training_may_begin_with_a_checkpoint(
    made: tuple[Path, Path], tmp_path: Path, method: str
) -> None:
    model, data = made
    place = ["--data", data, "--target", model, "--features", tmp_path / "features"]
    common = [method, *place, "--steps", 1, "--draft-vocab-size", 40]
    invoke(*common, "--lr", 0.1, "--out", tmp_path / "first")
    (checkpoint,) = (tmp_path / "first").glob("best-*")
    invoke(*common, "--lr", 1e-9, "--out", tmp_path / "second", "--start", checkpoint)
    first, second = (
        torch.load(tmp_path / run / "state.pt", weights_only=True)["parameters"]
        for run in ("first", "second")
    )
    assert all(torch.allclose(first[name], second[name], rtol=0.01, atol=1e-6) for name in first)


def test_more_features_than_needed_serve_another_drafter(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    model, data = made
    place = ["--data", data, "--target", model, "--features", tmp_path / "features"]
    assert "taps 0, 1, 2, 3" in invoke("features", *place, "--taps", "0,1,2")
    before = (tmp_path / "features" / "index.json").read_bytes()
    invoke("medusa", *place, "--steps", 1, "--draft-vocab-size", 40, "--out", tmp_path / "run")
    assert (tmp_path / "features" / "index.json").read_bytes() == before


def test_prompts_of_the_targets_own_and_tasks_are_prompt_files(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    model, data = made
    own = tmp_path / "own.jsonl"
    first = invoke("prompts", "--out", own, "--tries", 20, "--target", model)
    lines = own.read_text().splitlines()
    assert f"{len(lines)} prompts" in first
    assert first == invoke("prompts", "--out", own, "--tries", 20, "--target", model)
    invoke("prompts", "--out", own, "--tries", 40, "--target", model)
    assert own.read_text().splitlines()[: len(lines)] == lines
    assert "recipe" in refused("prompts", "--out", own, "--seed", 5, "--target", model)
    told = invoke("tasks", "--data", data, "--out", tmp_path / "tasks.jsonl", "--target", model)
    assert "prompts" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", 1, "--minutes", 1], "exactly one of --minutes and --steps"),
        (["--steps", 1, "--layers", "0,7"], "layers: [0, 7], limit ascending within 0 to 2"),
        (["--steps", 1, "--layers", "x"], "layers: 'x', limit whole numbers"),
        (["--steps", 1, "--draft-vocab-size", 65], "draft_vocab_size: 65, limit"),
        (["--steps", 1, "--lr", 0], "lr: 0.0, limit above 0"),
        (["--steps", 1, "--data", "nowhere"], "nowhere has no sequences"),
    ],
)
def test_bad_options_are_refused_by_name(
    made: tuple[Path, Path], tmp_path: Path, arguments: list[object], message: str
) -> None:
    model, data = made
    given = ["draft_model", "--data", data, "--target", model, "--out", tmp_path / "run"]
    features = ["--features", tmp_path / "features", "--draft-vocab-size", 40]
    told = refused(*given, *features, *arguments)
    assert message in " ".join(told.replace("│", " ").split())
