"""Texts by the target, many at once."""

from __future__ import annotations

import dataclasses

import torch

from tests.unit.training.material import VOCABULARY, encoded, random_prompts, world
from training.generate import Recipe, generate
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
