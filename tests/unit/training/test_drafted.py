"""What was trained is what the draft service proposes, and as long as the simulation says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import Setup
from draft_service.vocabulary import vocabulary_of
from outrider.core.round import Budget, SamplingParams
from tests.tiny import tiny_tokenizer
from tests.unit.training.material import world
from training.batches import Dataset
from training.evaluate import evaluate
from training.records import Record
from training.schedule import Options
from training.target import TrainingTarget
from training.trainer import Trainer

GREEDY = SamplingParams(temperature=0.0)


def test_chains_of_the_draft_service_are_as_long_as_simulated_ones(tmp_path: Path) -> None:
    here = world()
    place = tmp_path / "target"
    here.model.save_pretrained(place)
    tiny_tokenizer(64).save_pretrained(place)
    learner = here.learner(0.0)
    learner.parts = TrainingTarget(str(place)).parts
    options = Options(steps=80, rows=200, evaluations=1, lr=3e-3)
    trainer = Trainer(learner, here.material, options, tmp_path / "run", {})
    trainer.run()
    last = tmp_path / "last"
    last.mkdir()
    learner.save(last, trainer.measure())
    texts = [r for r in here.material.train.records if r.mode == "greedy"][:12]
    data = Dataset(texts, here.material.train.features, (), 64, torch.device("cpu"))
    ids = torch.from_numpy(here.material.vocabulary.ids)
    row_of, head = here.material.vocabulary.row_of, here.material.target_head
    simulated = evaluate(learner, data, row_of, head, ids).chain[3]
    drafter = build_drafter(
        f"draft_model={last}", Setup(str(place), vocabulary_of(str(place)), dtype="float32")
    )

    def played(text: Record) -> tuple[int, int]:
        ids, rounds = text.ids.tolist(), 0
        session = drafter.open(ids[: text.prompt_length + 1], GREEDY)
        while len(session.tokens) < len(ids):
            chain = drafter.propose([(session, Budget(3, 3, time_left_s=60.0))])[0].tree.tokens[1:]
            known = len(session.tokens)
            right = 0
            while right < 3 and known + right < len(ids) and chain[right] == ids[known + right]:
                right += 1
            drafter.observe(session, ids[known : known + right + 1])
            rounds += 1
        return len(ids) - text.prompt_length - 1, rounds

    tokens, rounds = map(sum, zip(*map(played, texts), strict=True))
    assert simulated > 1.1
    # The checkpoint is rounded to bfloat16, so a near tie may fall otherwise.
    assert tokens / rounds == pytest.approx(simulated, rel=0.02)
