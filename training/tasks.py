"""Prompts of other kinds from texts that the target wrote: translation, summaries, questions.

Nothing here knows an evaluation set: the texts are the target's own, the wording is ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training.prompts import Message, Prompt

LANGUAGES = ("German", "French", "Spanish", "Italian")
_TRANSLATED = "task/translate-to-"
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)\b[A-Z][a-z]{2,}(?: (?:of |the )?[A-Z][a-z]{2,}){0,3}")
_TO = (
    "Translate to {language}: {text}",
    "Translate English to {language}: {text}",
    'How do you say "{text}" in {language}?',
)
_FROM = ("Translate {language} to English: {text}", "Translate to English: {text}")
_SUMMARY = (
    "Summarize: {text}",
    "Summarize the following text in two or three sentences.\n\n{text}",
    "{text}\n\nTL;DR",
    "What are the main points of this text?\n\n{text}",
)
_ABOUT = (
    "what is {name}",
    "who was {name}",
    "where is {name}",
    "when did {name} begin",
    "why is {name} important",
    "what does {name} mean",
    "Tell me about {name}.",
)
_GIVEN = (
    "Given the text below, answer the question.\n\n{text}\n\nQuestion: {question}?\nAnswer:",
    "{text}\n\nUse only this text to answer: {question}?",
    "Context: {text}\n\nQuestion: {question}?",
)
_FOLLOW_UPS = (
    "Rewrite this in a shorter way.",
    "Can you explain that in simpler words?",
    "Give me an example.",
    "Put this into a list of bullet points.",
    "What could be wrong with this answer?",
    "Rewrite it as a letter to a friend.",
    "Which of these points matters most, and why?",
    "Continue.",
)


@dataclass(frozen=True)
class OwnText:
    """What the target answered.

    messages: in front of it, none where they are not known.
    source: of the prompt.
    group: digest of the prompt, which decides the side of the split.
    """

    messages: tuple[Message, ...]
    response: str
    source: str
    group: str


def task_prompts(texts: Iterable[OwnText], seed: int = 0) -> Iterator[Prompt]:
    """At most one prompt of each kind a text; the same for the same text and seed."""
    for text in texts:
        kinds = (_to_other, _from_other, _summary, _about, _given, _follow_up)
        for kind in kinds:
            rng = random.Random(f"{seed} {kind.__name__} {text.group} {text.source}")
            made = kind(text, rng)
            if made is not None:
                yield made


def sentences(text: str, least: int = 20, most: int = 220) -> list[str]:
    """Whole sentences of a text that read as prose, by their length in characters."""
    found = []
    for paragraph in text.split("\n"):
        for sentence in _SENTENCE.split(paragraph.strip()):
            ended = sentence.endswith((".", "!", "?"))
            if ended and least <= len(sentence) <= most and "|" not in sentence:
                found.append(sentence)
    return found


def _to_other(text: OwnText, rng: random.Random) -> Prompt | None:
    found = [] if text.source.startswith("task/") else sentences(text.response)
    if not found:
        return None
    language = rng.choice(LANGUAGES)
    wording = rng.choice(_TO).format(language=language, text=rng.choice(found))
    return _made(wording, f"{_TRANSLATED}{language.lower()}", text)


def _from_other(text: OwnText, rng: random.Random) -> Prompt | None:
    """Back into English what the target translated."""
    language = text.source.removeprefix(_TRANSLATED).capitalize()
    response = text.response.strip()
    if not text.source.startswith(_TRANSLATED) or not 10 <= len(response) <= 400:
        return None
    wording = rng.choice(_FROM).format(language=language, text=response)
    return _made(wording, f"task/translate-from-{language.lower()}", text)


def _passage(text: OwnText) -> str | None:
    """A response long enough to be asked about."""
    passage = text.response.strip()
    own = not text.source.startswith("task/")
    return passage if own and len(sentences(passage, most=1000)) >= 3 else None


def _summary(text: OwnText, rng: random.Random) -> Prompt | None:
    passage = _passage(text)
    if passage is None:
        return None
    return _made(rng.choice(_SUMMARY).format(text=passage), "task/summarize", text)


def _names(text: OwnText) -> list[str]:
    return sorted({match.group() for match in _NAME.finditer(text.response)})


def _about(text: OwnText, rng: random.Random) -> Prompt | None:
    names = _names(text)
    if not names or text.source.startswith("task/"):
        return None
    wording = rng.choice(_ABOUT).format(name=rng.choice(names))
    return _made(wording, "task/question", text)


def _given(text: OwnText, rng: random.Random) -> Prompt | None:
    passage, names = _passage(text), _names(text)
    if passage is None or not names:
        return None
    question = rng.choice(_ABOUT[:-1]).format(name=rng.choice(names))
    return _made(rng.choice(_GIVEN).format(text=passage, question=question), "task/context", text)


def _follow_up(text: OwnText, rng: random.Random) -> Prompt | None:
    if text.source.startswith("task/") or not text.messages or not text.response.strip():
        return None
    turns = (
        *text.messages,
        ("assistant", text.response.strip()),
        ("user", rng.choice(_FOLLOW_UPS)),
    )
    return Prompt(turns, "task/follow-up", text.group)


def _made(wording: str, source: str, text: OwnText) -> Prompt:
    return Prompt((("user", wording),), source, text.group)
