"""Texts by the target, many at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch

from outrider.models.segment import Segment
from tests.unit.training.material import VOCABULARY, encoded, random_prompts, world
from training.generate import Recipe, generate
from training.opening import common_opening
from training.records import EOS, GREEDY, LENGTH, LOOP
from training.shards import Record

RECIPE = Recipe(slots=8, max_tokens=20)


def written(recipe: Recipe, count: int = 20) -> dict[str, Record]:
    lm = world().lm
    found = generate(lm, random_prompts(count), recipe, frozenset(lm.eos_ids))
    return {record.digest: record for record in found}


def test_greedy_texts_are_what_transformers_writes_up_to_loop_or_end() -> None:
    model = world().model
    greedy = [r for r in written(RECIPE).values() if r.mode == GREEDY]
    assert len(greedy) > 3
    for record in greedy:
        ids = record.ids[: record.prompt_length].tolist()
        with torch.no_grad():
            for token in record.response.tolist():
                logits = model(torch.tensor([ids])).logits[0, -1]
                assert token == int(logits.argmax())
                ids.append(token)
        assert record.end in (EOS, LENGTH, LOOP)
        assert (record.end == EOS) == (ids[-1] == VOCABULARY - 1)
        assert record.end != LENGTH or len(record.response) == 20


def test_texts_do_not_depend_on_which_are_written_beside_them() -> None:
    alone, together = written(dataclasses.replace(RECIPE, slots=1)), written(RECIPE)
    assert {d: r.ids.tolist() for d, r in alone.items()} == {
        d: r.ids.tolist() for d, r in together.items()
    }


def test_another_seed_writes_other_sampled_texts() -> None:
    other = written(dataclasses.replace(RECIPE, seed=1))
    assert any(
        other[d].ids.tolist() != r.ids.tolist() for d, r in written(RECIPE).items() if d in other
    )


def test_both_modes_occur_and_every_prompt_is_answered_once() -> None:
    found = written(RECIPE, 40)
    assert len(found) == 40
    assert {r.mode for r in found.values()} == {"greedy", "sampled"}


def test_a_prompt_without_room_for_a_response_is_left_out_and_memory_is_given_back() -> None:
    lm = world().lm
    used = lm.pool.used
    prompts = [encoded([1] * 500), encoded([1, 2])]
    found = list(generate(lm, prompts, RECIPE, frozenset(lm.eos_ids)))
    assert [r.prompt_length for r in found] == [2]
    assert lm.pool.used == used


def test_what_all_prompts_begin_with_is_computed_once_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = world().lm
    prompts = [encoded([5, 6, 7, n, 9]) for n in range(10, 20)]
    shared = common_opening([prompt.ids for prompt in prompts])
    assert shared == (5, 6, 7)
    rows: list[int] = []
    forward = lm.forward
    monkeypatch.setattr(
        lm, "forward", lambda segments: rows.append(_rows(segments)) or forward(segments)
    )
    texts, counts = [], []
    for opening in ((), shared, (5, 6, 8), (5, 6, 7, 10, 9)):
        found = generate(lm, prompts, RECIPE, frozenset(lm.eos_ids), opening)
        texts.append({record.digest: record.ids.tolist() for record in found})
        counts.append(sum(rows))
        rows.clear()
    assert texts[1:] == texts[:1] * 3
    assert counts[0] - counts[1] == 3 * (len(prompts) - 1)
    assert counts[2] - counts[0] == 3


def _rows(segments: Sequence[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)


def test_a_common_opening_is_the_longest() -> None:
    assert common_opening([(1, 2, 3), (1, 2), (1, 2, 4)]) == (1, 2)
    assert common_opening([(1, 2), (3,)]) == ()
    assert common_opening([]) == ()
