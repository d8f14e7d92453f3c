"""The prompts of the exactness tests: ten or more of each kind, written for this project, and edge
cases.

The files hold one JSON object a line: `{"kind": ..., "prompt": ...}`; the file's name is the kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
KINDS = ("chat", "translation", "summary", "question", "maths", "code")


@dataclass(frozen=True)
class Prompt:
    """One prompt: its kind (one of KINDS, `one_token` or `long`) and its text."""

    kind: str
    prompt: str


def load(kinds: Iterable[str] | None = None) -> list[Prompt]:
    """All prompts of the kinds (default: all of KINDS), kind by kind, each in file order.

    Raises:
        ValueError: a kind is not one of KINDS.
    """
    prompts: list[Prompt] = []
    for kind in KINDS if kinds is None else kinds:
        if kind not in KINDS:
            raise ValueError(f"kind: {kind!r} is none of {', '.join(KINDS)}")
        lines = (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
        prompts += [Prompt(**json.loads(line)) for line in lines]
    return prompts


def interleaved(limit: int | None = None) -> list[Prompt]:
    """The first `limit` prompts, one kind after the other in turn, so that a slice has every kind
    in it.
    """
    by_kind = [load([kind]) for kind in KINDS]
    longest = max(len(prompts) for prompts in by_kind)
    turns = [prompts[i] for i in range(longest) for prompts in by_kind if i < len(prompts)]
    return turns[:limit]


def one_token() -> list[Prompt]:
    """Texts that a byte-level BPE of English makes one token of each."""
    return [Prompt("one_token", text) for text in ("The", "Once", "I", "\n", "def", "1")]


def long(count: int = 2, words: int = 1210) -> list[Prompt]:
    """`count` prompts of at least `words` words: about 1,500 tokens of the default target's
    tokenizer.

    Each chains the summary texts, from another start, as often as needed; so text that occurred
    before comes
    again, which drafters that look up n-grams live on.
    """
    texts = [prompt.prompt for prompt in load(["summary"])]
    prompts = []
    for first in range(count):
        parts: list[str] = []
        turn = first * 3
        while sum(len(part.split()) for part in parts) < words:
            parts.append(texts[turn % len(texts)])
            turn += 1
        wanted = " ".join(parts).split(" ")[: words + 60]
        prompts.append(Prompt("long", " ".join(wanted)))
    return prompts
