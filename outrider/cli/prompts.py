"""Prompt files: Spec-Bench's format, or lines with a prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNCATEGORISED = "none"


class PromptFileError(ValueError):
    """A prompt file cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Prompt:
    """A prompt to measure with; `chat` is whether the model's template is applied."""

    name: str
    category: str
    text: str
    chat: bool


def read_prompts(path: Path, limit: int | None = None, *, chat: bool = False) -> list[Prompt]:
    """The first `limit` prompts of a JSON-lines file; blank lines are skipped.

    A line has `turns` (Spec-Bench: `question_id`, `category`, `turns`; the first turn is used, as a
    chat message) or `prompt` (raw text, or a chat message with `chat`).

    Raises:
        PromptFileError: the file cannot be read, a line is bad, or there is none.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PromptFileError(f"prompts: {path} cannot be read: {error.strerror}") from error
    prompts: list[Prompt] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if limit is not None and len(prompts) >= limit:
            break
        if line.strip():
            try:
                prompts.append(_prompt(line, number, chat))
            except (ValueError, RecursionError) as error:
                raise PromptFileError(f"{path}:{number}: {error}") from error
    if not prompts:
        raise PromptFileError(f"{path}: has no prompts")
    return prompts


def _prompt(line: bytes, number: int, chat: bool) -> Prompt:
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise ValueError("is not a JSON object")
    if ("turns" in entry) == ("prompt" in entry):
        raise ValueError("must have either turns or prompt")
    name = str(entry.get("question_id", entry.get("id", number)))
    category = _text(entry.get("category", UNCATEGORISED), "category")
    if "prompt" in entry:
        return Prompt(name, category, _text(entry["prompt"], "prompt"), chat)
    turns = entry["turns"]
    if not isinstance(turns, list) or not turns:
        raise ValueError("turns: must be a list with at least one entry")
    return Prompt(name, category, _text(turns[0], "turns[0]"), chat=True)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: must be a text that is not empty")
    return value
