"""Runs in a process of its own that kills itself: `python -m tests.unit.training.killed WHAT ...`.

train FOLDER STEP: a training of 24 steps that dies behind step STEP (0: never); with STEP negative
it dies while it writes the state of that step, before the file has its name.
data FOLDER MODEL PROMPTS COUNT: answers prompts and dies once COUNT are done (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from outrider import files
from tests.unit.training.material import world
from training.data import Counts, make_data
from training.generate import Recipe
from training.prompts import read_source
from training.schedule import Options
from training.target import TrainingTarget
from training.trainer import Told, Trainer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, step: int) -> None:
    options = Options(steps=24, rows=120, evaluations=3, checkpoint_s=0.0, warmup=3)
    trainer = Trainer(world().learner(), world().material, options, folder, {"target": "tiny"})

    def tell(told: Told) -> None:
        if told.step == step:
            die()
        if told.step == -step:
            files.os.fsync = lambda handle: die()  # type: ignore[attr-defined]

    trainer.run(tell)


def data(folder: Path, model: str, prompts: str, count: int) -> None:
    def tell(counts: Counts, total: int) -> None:
        if counts.sequences == count > 0:
            die()

    recipe = Recipe(slots=4, max_tokens=12)
    source = read_source(prompts)
    make_data(TrainingTarget(model), [source], folder, recipe, tell=tell)


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, folder, *rest = sys.argv[1:]
    if what == "train":
        train(Path(folder), int(rest[0]))
    else:
        data(Path(folder), rest[0], rest[1], int(rest[2]))
