"""The prompt set is what it says it is."""

from __future__ import annotations

import pytest

from tests import prompts


def test_every_kind_has_at_least_ten_prompts_and_the_set_at_least_sixty() -> None:
    for kind in prompts.KINDS:
        loaded = prompts.load([kind])
        assert len(loaded) >= 10
        assert {prompt.kind for prompt in loaded} == {kind}
    assert len(prompts.load()) >= 60


def test_no_prompt_is_empty_or_occurs_twice() -> None:
    texts = [prompt.prompt for prompt in prompts.load()]
    assert all(text.strip() for text in texts)
    assert len(set(texts)) == len(texts)


def test_summary_prompts_have_150_to_400_words() -> None:
    assert all(150 <= len(prompt.prompt.split()) <= 400 for prompt in prompts.load(["summary"]))


def test_lengths_vary_within_the_whole_set() -> None:
    lengths = [len(prompt.prompt.split()) for prompt in prompts.load()]
    assert min(lengths) <= 5
    assert max(lengths) >= 300


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="kind: 'poetry'"):
        prompts.load(["poetry"])


def test_a_slice_of_six_has_every_kind_in_it() -> None:
    assert {prompt.kind for prompt in prompts.interleaved(6)} == set(prompts.KINDS)
    assert len(prompts.interleaved()) == len(prompts.load())


def test_long_prompts_differ_and_reach_their_length() -> None:
    first, second = prompts.long(2)
    assert first.prompt != second.prompt
    assert all(1210 <= len(prompt.prompt.split()) <= 1290 for prompt in (first, second))
