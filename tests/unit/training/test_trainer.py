"""Training on texts of a tiny target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.models.heads.draft_model_files import load_draft_model
from tests.unit.training.material import world
from training.acceptance import Acceptance
from training.batches import epoch_batches
from training.files import TrainingError
from training.learner import batch_loss, columns, trained
from training.report import report, write_report
from training.schedule import Options
from training.trainer import Trainer


def trainer(folder: Path, **options: Any) -> Trainer:
    chosen = Options(**{"steps": 60, "rows": 200, "evaluations": 4, "lr": 3e-3, **options})
    return Trainer(world().learner(0.0), world().material, chosen, folder, {"target": "tiny"})


def test_loss_falls_and_acceptance_rises_and_the_report_tells_it(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.learner.module.train(False)
    before = made.measure()
    best = made.run()
    curve = made.state.curve
    assert curve[-1][2] < curve[0][2]
    assert made.state.best_score > before.score
    document = report(tmp_path, {"all": 0.9})
    assert document["best"]["chain"]["4"] == made.state.best_score
    assert best.name == f"best-{document['best']['step']:06d}"
    path, _ = write_report(tmp_path, document)
    assert json.loads(path.read_text())["coverage"] == {"all": 0.9}


def test_curves_are_drawn_where_matplotlib_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trainer(tmp_path, steps=45).run()
    _, curves = write_report(tmp_path, report(tmp_path))
    assert curves is not None
    assert curves.read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    best = trainer(tmp_path, steps=4).run()
    before = (tmp_path / "state.pt").read_bytes()
    assert trainer(tmp_path, steps=4).run() == best
    assert (tmp_path / "state.pt").read_bytes() == before


def test_the_best_checkpoint_is_kept_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = iter([1.2, 1.5, 1.4, 1.3])

    def measured(self: Trainer) -> Acceptance:
        length = next(lengths)
        return Acceptance(0.1, (0.1,), {4: length}, {}, (), 1.0, (), 1, 1)

    monkeypatch.setattr(Trainer, "measure", measured)
    assert trainer(tmp_path, steps=8).run().name == "best-000004"
    assert [p.name for p in tmp_path.glob("best-*")] == ["best-000004"]


def test_only_layers_and_final_norm_are_trained() -> None:
    names = set(trained(world().learner()))
    assert "norm.weight" in names
    assert {name.split(".")[1] for name in names if name.startswith("layers.")} == {"0", "1"}
    assert not any("embed" in name or "head" in name for name in names)


def test_the_checkpoint_computes_what_was_trained(tmp_path: Path) -> None:
    made = trainer(tmp_path, steps=20)
    made.run()
    best = tmp_path / "last"
    made.learner.save(best, made.measure())
    here = world()
    loaded = load_draft_model(best, here.model, here.parts)
    made.learner.module.train(False)
    batch = here.material.train.batch([0])
    with torch.no_grad():
        wanted = made.learner.head(0).logits(made.learner.states(batch, 1)[0][0])
        found = loaded.model(batch.ids).logits[0]
    assert found.shape[1] == len(here.material.vocabulary.ids)
    scale = float(wanted.abs().max())
    assert torch.allclose(found, wanted, atol=0.03 * scale)  # bfloat16
    assert loaded.ids.tolist() == here.material.vocabulary.ids.tolist()


def test_prompt_tokens_count_as_much_as_they_are_told_to() -> None:
    here = world()
    learner, batch = here.learner(0.0), here.material.train.batch([0, 1, 2])
    learner.module.train(False)
    head = here.material.teacher_head
    with torch.no_grad():
        losses = [float(batch_loss(learner, batch, 0.0, w, head)) for w in (0.0, 1.0)]
    row, column = columns(batch, 0).nonzero(as_tuple=True)
    states = learner.states(batch, 1)[0][row, column].detach()
    p = torch.softmax(head.logits(batch.final[row, column]), -1)
    each = -(p * torch.log_softmax(learner.head(0).logits(states), -1)).sum(-1)
    response = column + 1 >= batch.prompt_lengths[row]
    assert losses == pytest.approx([float(each[response].mean()), float(each.mean())], rel=1e-5)


def test_padding_and_column_0_propose_nothing() -> None:
    batch = world().material.train.batch([0, 1])
    for depth in (0, 2):
        mask = columns(batch, depth)
        assert not mask[:, 0].any()
        assert mask.sum(1).tolist() == [int(n) - 2 - depth for n in batch.lengths]


def test_an_epoch_has_every_sequence_once_in_an_order_of_its_own() -> None:
    lengths = [(7 * n) % 50 + 3 for n in range(150)]
    epochs = [epoch_batches(lengths, 200, 0, epoch) for epoch in (0, 1)]
    for batches in epochs:
        assert sorted(place for batch in batches for place in batch) == list(range(150))
        assert all(max(lengths[p] for p in b) * len(b) <= 200 for b in batches)
    assert epochs[0] != epochs[1]
    assert epochs[0] == epoch_batches(lengths, 200, 0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None}, "steps and seconds: exactly one"),
        ({"seconds": 3.0}, "steps and seconds: exactly one"),
        ({"lr": -1.0}, "lr: -1.0, limit above 0"),
        ({"rows": 0}, "rows: 0, limit above 0"),
    ],
)
def test_nonsense_is_refused(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Options(**{"steps": 1, **options})


def test_the_rate_warms_up_and_falls_to_its_floor() -> None:
    options = Options(steps=100, lr=1.0, warmup=10, floor=0.05)
    rates = [options.rate(step, options.progress(step, 0.0)) for step in range(101)]
    assert rates[0] == pytest.approx(0.1, rel=0.01)
    assert max(rates) == rates[9] or max(rates) == rates[10]
    assert rates[100] == pytest.approx(0.05)
    assert Options(seconds=10.0).progress(5, 20.0) == 1.0
