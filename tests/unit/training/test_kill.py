"""What is left when a process is killed, and what the next one makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tiny import save_tiny
from training.shards import read_corpus

ROOT = Path(__file__).parents[3]


def run(*arguments: object) -> int:
    command = [sys.executable, "-m", "tests.unit.training.killed", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    content = torch.load(folder / "state.pt", weights_only=True)
    assert content["run"]["step"] == 24
    return content["parameters"]


def test_a_training_killed_twice_ends_with_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run("train", whole, 0) == 0
    assert run("train", killed, 10) == -9
    assert run("train", killed, -15) == -9  # within the writing of a state
    assert (killed / ".state.pt.part").exists()
    assert run("train", killed, 0) == 0
    wanted, found = parameters(whole), parameters(killed)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    histories = [json.loads((f / "history.json").read_text())["history"] for f in (whole, killed)]
    for history in histories:
        for entry in history:
            del entry["seconds"]
    assert histories[0] == histories[1]
    assert sorted(p.name for p in killed.glob("best-*")) == sorted(
        p.name for p in whole.glob("best-*")
    )


def test_generation_killed_loses_only_unfinished_texts_and_repeats_none(tmp_path: Path) -> None:
    model, prompts = tmp_path / "model", tmp_path / "prompts.txt"
    save_tiny(model, layers=2, hidden=32)
    prompts.write_text("".join(f"w{n} w{n + 1} w{n + 2}\n" for n in range(1, 31)))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run("data", whole, model, prompts, 0) == 0
    assert run("data", killed, model, prompts, 7) == -9
    kept = {r.digest: r.ids.tolist() for r in read_corpus(killed)}
    assert len(kept) == 7
    assert run("data", killed, model, prompts, 0) == 0
    found = [(r.digest, r.ids.tolist()) for r in read_corpus(killed)]
    assert len(found) == len(dict(found))
    assert kept.items() <= dict(found).items()
    assert dict(found) == {r.digest: r.ids.tolist() for r in read_corpus(whole)}
    about = json.loads(next(killed.glob("shard-*.json")).read_text())
    assert about["recipe"]["max_tokens"] == 12
    assert about["target"]["vocab_size"] == 64
    assert next(iter(about["sources"].values()))


@pytest.mark.parametrize("name", ["lr", "seed"])
def test_a_run_with_another_recipe_is_refused_by_name(tmp_path: Path, name: str) -> None:
    from tests.unit.training.material import world
    from training.files import TrainingError
    from training.schedule import Options
    from training.trainer import Trainer

    options = Options(steps=1, rows=120, evaluations=1)
    Trainer(world().learner(), world().material, options, tmp_path, {}).run()
    other = Options(**{**options.to_json(), name: 7})
    with pytest.raises(TrainingError, match=rf"run\.json: {name} is .*, wanted 7"):
        Trainer(world().learner(), world().material, other, tmp_path, {}).run()
