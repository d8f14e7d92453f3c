"""Prompts that the target writes itself."""

from __future__ import annotations

import dataclasses

import pytest

from tests.tiny import tiny_llama, tiny_tokenizer
from training.files import TrainingError
from training.magpie import SelfPrompts, closing_ids, opening_of, self_prompts

CHAT = (
    "{% if messages[0]['role'] != 'system' %}w7 w8 {% endif %}"
    "{% for m in messages %}w10 {{ m['content'] }} w11 {% endfor %}"
)
RECIPE = SelfPrompts(slots=4, max_tokens=30, least=2, most=200)


def tokenizer():  # type: ignore[no-untyped-def]
    made = tiny_tokenizer()
    made.chat_template = CHAT
    return made


def test_the_opening_has_the_default_system_text_and_the_turns_end_is_known() -> None:
    opening, after = opening_of(tokenizer())
    assert opening == [7, 8, 10]
    assert closing_ids(tokenizer(), after) == {11}


def test_kept_prompts_ended_and_do_not_depend_on_their_company() -> None:
    lm = tiny_llama()
    told: list[int] = []
    found = dict(self_prompts(lm, tokenizer(), RECIPE, 40, heard=told.append))
    assert sum(told) == 40
    assert 0 < len(found) < 40
    words = [prompt.messages[0][1].split() for prompt in found.values()]
    assert all("w11" not in text and "w63" not in text and len(text) < 30 for text in words)
    one = dataclasses.replace(RECIPE, slots=1)
    rest = dict(self_prompts(lm, tokenizer(), one, 20, start=20))
    assert rest == {n: p for n, p in found.items() if n >= 20}
    assert lm.pool.used == 0


def test_a_tokenizer_without_chat_template_is_refused() -> None:
    with pytest.raises(TrainingError, match="no chat template"):
        opening_of(tiny_tokenizer())
