"""EAGLE and Medusa heads as learners."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outrider.models.heads.eagle_files import load_eagle
from outrider.models.heads.medusa_files import load_medusa
from tests.unit.training.material import CPU, world
from training.batches import Dataset
from training.eagle import EagleLearner, EagleRecipe
from training.learner import Learner, batch_loss, columns, trained
from training.medusa import MedusaLearner
from training.schedule import Options
from training.trainer import Material, Trainer


def material() -> Material:
    from dataclasses import replace

    given = world().material
    return replace(given, train=_tapped(given.train), held_out=_tapped(given.held_out))


def _tapped(data: Dataset) -> Dataset:
    return Dataset(data.records, data.features, (1,), data.longest, CPU)


def learner(method: str) -> EagleLearner | MedusaLearner:
    here, torch_seed = world(), 3
    torch.manual_seed(torch_seed)
    vocabulary = here.material.vocabulary
    if method == "eagle":
        recipe = EagleRecipe(taps=(1,), dropout=0.0)
        return EagleLearner(here.model, vocabulary, here.parts, recipe)
    return MedusaLearner(here.model, vocabulary, here.parts, heads=3)


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_it_learns_and_its_checkpoint_computes_the_same(tmp_path: Path, method: str) -> None:
    made: Learner = learner(method)
    steps = {"eagle": 60, "medusa": 300}[method]
    options = Options(steps=steps, rows=250, evaluations=2, lr=3e-3)
    trainer = Trainer(made, material(), options, tmp_path / "run", {})
    before = trainer.measure()
    best = trainer.run()
    assert trainer.state.best_score >= before.score
    assert all(b < a for b, a in zip(before.overlap, trainer.measure().overlap, strict=True))
    curve = [point[2] for point in trainer.state.curve]
    assert curve[0] > curve[1] or method == "eagle"  # its loss changes with the steps unrolled
    assert best.is_dir()
    last = tmp_path / "last"
    made.save(last, trainer.measure())
    parts = world().parts
    batch = material().train.batch([0, 1])
    made.module.train(False)
    with torch.no_grad():
        wanted = made.states(batch, 2)
        if isinstance(made, EagleLearner):
            head = load_eagle(last, parts)
            found = [head.head_input(y) for y in head.unroll(batch.ids, batch.taps, 2)]
        else:
            heads = load_medusa(last, parts)
            assert heads.config.accuracies
            found = list(heads(batch.final, torch.roll(batch.ids, -1, dims=1)))
    for mine, theirs in zip(wanted, found, strict=False):
        scale = float(theirs.abs().max())
        assert torch.allclose(mine[:, 1:], theirs[:, :-1], atol=0.05 * scale)  # bfloat16


@pytest.mark.parametrize("method", ["eagle", "medusa"])
def test_a_column_uses_nothing_that_a_round_begun_there_does_not_know(method: str) -> None:
    """Features of column m and tokens behind it are changed; its states must not be."""
    made, batch = learner(method), material().train.batch([0])
    made.module.train(False)
    if isinstance(made, MedusaLearner):
        torch.nn.init.normal_(made.medusa.root.weight)  # it starts at zero
    m = 5
    with torch.no_grad():
        before = made.states(batch, 1)[0][0]
        batch.ids[:, m + 1 :] = 7
        batch.taps[:, m:] = 1.0
        batch.final[:, m:] = 1.0
        after = made.states(batch, 1)[0][0]
    assert torch.equal(before[: m + 1], after[: m + 1])
    assert not torch.equal(before[m + 1 :], after[m + 1 :])
    with torch.no_grad():
        batch.ids[:, m] = 7
        rooted = made.states(batch, 1)[0][0]
    assert torch.equal(after[:m], rooted[:m])
    assert not torch.equal(after[m], rooted[m]), "the root of the round is known"


def test_the_teacher_of_a_column_is_the_target_where_the_token_is_proposed() -> None:
    """Medusa heads that repeat the target's state are right when the text does not change."""
    made, batch = learner("medusa"), material().train.batch([0])
    state = torch.randn(32)
    batch.final[:] = state
    head = world().material.teacher_head
    p = torch.softmax(head.logits(state[None]), -1)[0]
    with torch.no_grad():
        loss = float(batch_loss(made, batch, 0.0, 1.0, head))
    assert loss == pytest.approx(float(-(p * p.log()).sum()), rel=1e-4)  # its own entropy
    assert int(columns(batch, 0).sum()) > 3


def test_embedding_and_head_are_frozen() -> None:
    assert not any("embed" in n or "lm_head" in n for n in trained(learner("eagle")))
    assert all(name.startswith(("blocks.", "root.")) for name in trained(learner("medusa")))
    assert [learner("eagle").depth_weights(p) for p in (0.0, 0.9)] == [(1.0,), (1.0, 0.8, 0.64)]
