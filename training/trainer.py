"""The loop that trains a drafter; it may be killed at any time and goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from outrider.files import replace_json
from training.acceptance import Acceptance
from training.batches import Dataset, epoch_batches
from training.evaluate import evaluate
from training.files import TrainingError, alone, read_json, replace_folder
from training.head import Head
from training.learner import Learner, batch_loss, trained
from training.precision import DTYPES
from training.run_state import RunState, load_state, save_state
from training.schedule import Options, make_optimizer
from training.vocabulary import DraftVocabulary

LOSS_EVERY = 20
"""Steps whose mean loss is one point of the curve."""


@dataclass(frozen=True)
class Told:
    """What a progress bar shows: share of the budget, loss, and the last acceptance length."""

    share: float
    step: int
    loss: float
    score: float


Tell = Callable[[Told], None]


@dataclass(frozen=True)
class Material:
    """What is trained from.

    teacher_head: the target's rows of the draft vocabulary; target_head: all of its rows.
    """

    train: Dataset
    held_out: Dataset
    vocabulary: DraftVocabulary
    teacher_head: Head
    target_head: Head

    def __post_init__(self) -> None:
        for name in ("train", "held_out"):
            if not getattr(self, name).records:
                raise TrainingError(f"{name}: has no sequences, limit at least 1")


class Trainer:
    """One training in one folder.

    The folder has run.json (the recipe), state.pt (to go on from), best-STEP/ (the checkpoint with
    the greatest held-out acceptance length, not the least loss) and history.json.

    Args:
        learner: its parameters are those to start from.
        material: what to learn from.
        options: how.
        folder: made where it is missing; one that has a state is gone on with.
        about: provenance, stored in run.json; what differs from a stored one is refused.

    Raises:
        TrainingError: the folder has a run with another recipe, or it is in use.
    """

    def __init__(
        self,
        learner: Learner,
        material: Material,
        options: Options,
        folder: Path,
        about: dict[str, Any],
    ) -> None:
        self.learner, self.material, self.options, self.folder = learner, material, options, folder
        self._recipe = {"method": learner.method, "options": options.to_json(), **about}
        self._parameters = trained(learner)
        self._device = material.train.device
        self._optimizer = make_optimizer(self._parameters.values(), options)
        self._draft_ids = torch.from_numpy(material.vocabulary.ids).to(self._device)
        self._teacher_head = material.teacher_head.to(DTYPES[options.precision])
        self.state = RunState()

    def run(self, tell: Tell = lambda told: None) -> Path:
        """Trains until the budget is used; the best checkpoint's folder.

        Raises:
            TrainingError: see the class; or the loss is no number.
        """
        with alone(self.folder):
            self._begin()
            self.learner.module.train(True)
            saved = time.monotonic()
            for places in self._batches():
                self._step(places, tell)
                progress = self._progress()
                due = int(progress * self.options.evaluations)
                if due > self.state.evaluated or progress >= 1:
                    self._evaluate(due)
                    self._save()
                    saved = time.monotonic()
                elif time.monotonic() - saved >= self.options.checkpoint_s:
                    self._save()
                    saved = time.monotonic()
                if progress >= 1:
                    break
            return self.folder / self.state.best

    def _begin(self) -> None:
        path = self.folder / "run.json"
        if path.exists():
            _check_same(read_json(path), self._recipe, path)
        else:
            replace_json(path, self._recipe)
        torch.manual_seed(self.options.seed)
        state = self.folder / "state.pt"
        if state.exists():
            self.state = load_state(state, self._parameters, self._optimizer, self._device)

    def _batches(self) -> Iterator[list[int]]:
        """Batches from where the state is; none where the budget is used already."""
        lengths = self.material.train.lengths
        while self._progress() < 1:
            state = self.state
            batches = epoch_batches(lengths, self.options.rows, self.options.seed, state.epoch)
            while state.batch < len(batches):
                places = batches[state.batch]
                state.batch += 1
                yield places
            state.epoch += 1
            state.batch = 0

    def _progress(self) -> float:
        return self.options.progress(self.state.step, self.state.elapsed)

    def _step(self, places: list[int], tell: Tell) -> None:
        started = time.monotonic()
        state, options, progress = self.state, self.options, self._progress()
        for group in self._optimizer.param_groups:
            group["lr"] = options.rate(state.step, progress)
        batch = self.material.train.batch(places)
        weight = options.prompt_weight
        loss = batch_loss(self.learner, batch, progress, weight, self._teacher_head)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), options.clip)
        value = float(loss.detach())
        if value != value or value in (float("inf"), float("-inf")):
            raise TrainingError(f"loss: {value} at step {state.step}; a lower lr may help")
        self._optimizer.step()
        state.step += 1
        state.loss_tokens += int(batch.lengths.sum())
        state.losses.append(value)
        state.elapsed += time.monotonic() - started
        if len(state.losses) == LOSS_EVERY:
            mean = sum(state.losses) / LOSS_EVERY
            state.curve.append([float(state.step), state.elapsed, mean])
            state.losses.clear()
        tell(Told(self._progress(), state.step, value, state.best_score))

    def _evaluate(self, due: int) -> None:
        found = self.measure()
        state = self.state
        state.evaluated = due
        state.history.append(
            {
                "step": state.step,
                "seconds": round(state.elapsed, 1),
                "epoch": state.epoch,
                "loss_tokens": state.loss_tokens,
                **found.to_json(),
            }
        )
        if found.score > state.best_score:
            state.best_score, state.best = found.score, f"best-{state.step:06d}"
            replace_folder(
                self.folder / state.best, lambda folder: self.learner.save(folder, found)
            )

    def measure(self) -> Acceptance:
        """Acceptance on the held-out texts as the learner is now."""
        material = self.material
        row_of, target = material.vocabulary.row_of, material.target_head
        return evaluate(self.learner, material.held_out, row_of, target, self._draft_ids)

    def _save(self) -> None:
        path = self.folder / "state.pt"
        save_state(path, self.state, self._parameters, self._optimizer, self._device)
        replace_json(self.folder / "history.json", self.state.to_json())
        for old in self.folder.glob("best-*"):
            if old.name != self.state.best:
                _remove(old)


def _check_same(stored: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    for name in sorted({*stored, *wanted}):
        if stored.get(name) == wanted.get(name):
            continue
        before, now = stored.get(name), wanted.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            _check_same(before, now, path)
        raise TrainingError(
            f"{path}: {name} is {before}, wanted {now}; take another folder for another recipe"
        )


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
