"""Prompts of other kinds from the target's own texts."""

from __future__ import annotations

from training.tasks import OwnText, sentences, task_prompts

ANSWER = (
    "The river Rhine begins in Switzerland. It flows through several countries of Europe. "
    "Many towns stand on its banks.\n| a | table |\nshort."
)
TEXT = OwnText((("user", "Tell me of rivers."),), ANSWER, "own/prompts.jsonl", "00ff")


def by_source(text: OwnText, seed: int = 0) -> dict[str, tuple[tuple[str, str], ...]]:
    return {prompt.source: prompt.messages for prompt in task_prompts([text], seed)}


def test_sentences_are_whole_and_prose() -> None:
    assert sentences(ANSWER) == [
        "The river Rhine begins in Switzerland.",
        "It flows through several countries of Europe.",
        "Many towns stand on its banks.",
    ]


def test_every_kind_is_made_of_the_text_and_stays_in_its_group() -> None:
    found = by_source(TEXT)
    language = next(s for s in found if s.startswith("task/translate-to-")).rpartition("-")[2]
    assert set(found) == {
        f"task/translate-to-{language}",
        "task/summarize",
        "task/question",
        "task/context",
        "task/follow-up",
    }
    assert language.capitalize() in found[f"task/translate-to-{language}"][0][1]
    assert any(s in found[f"task/translate-to-{language}"][0][1] for s in sentences(ANSWER))
    assert ANSWER in found["task/summarize"][0][1]
    assert ANSWER in found["task/context"][0][1]
    assert found["task/follow-up"][:2] == (TEXT.messages[0], ("assistant", ANSWER))
    assert all(prompt.group == "00ff" for prompt in task_prompts([TEXT]))


def test_questions_ask_about_names_and_not_about_first_words() -> None:
    asked = {by_source(TEXT, seed)["task/question"][0][1] for seed in range(40)}
    assert all("Rhine" in q or "Switzerland" in q or "Europe" in q for q in asked)


def test_translations_are_translated_back_and_are_no_texts_for_other_tasks() -> None:
    text = OwnText((), "Der Rhein beginnt in der Schweiz.", "task/translate-to-german", "00ff")
    (source, messages), *rest = by_source(text).items()
    assert not rest
    assert source == "task/translate-from-german"
    assert messages[0][1].endswith("Der Rhein beginnt in der Schweiz.")


def test_the_seed_decides() -> None:
    assert by_source(TEXT, 3) == by_source(TEXT, 3)
    assert len({str(by_source(TEXT, seed)) for seed in range(10)}) > 1


def test_short_texts_make_nothing_of_what_they_lack() -> None:
    assert by_source(OwnText((), "no", "own", "0")) == {}
