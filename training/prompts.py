"""Prompts: from files, from the target itself, from tasks; all as the ids that the target reads."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from training.files import TrainingError
from training.records import digest_of

FIELDS = ("messages", "prompt", "question", "instruction", "text")
_SPEC = re.compile(r"(.+?)(?::([A-Za-z_]\w*))?(?::(\d+)-(\d+))?")
Message = tuple[str, str]


@dataclass(frozen=True)
class Prompt:
    """Turns in front of a response.

    Args:
        messages: (role, content), the user's last.
        source: where it is from.
        group: digest of the prompt that it was made from, None where it is the first.
    """

    messages: tuple[Message, ...]
    source: str
    group: str | None = None

    @classmethod
    def user(cls, text: str, source: str) -> Prompt:
        """One turn."""
        return cls((("user", text),), source)

    def to_json(self) -> dict[str, Any]:
        """As a line of a prompt file."""
        line: dict[str, Any] = {"messages": [list(m) for m in self.messages], "source": self.source}
        return line if self.group is None else {**line, "group": self.group}


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as token ids, its template applied."""

    ids: tuple[int, ...]
    source: str
    digest: str
    group: str


@dataclass(frozen=True)
class Source:
    """A prompt file; `digest` is SHA-256 of its bytes."""

    name: str
    digest: str
    prompts: tuple[Prompt, ...]


def read_source(spec: str) -> Source:
    """The prompts of FILE, FILE:FIELD or FILE:FIELD:FIRST-LAST (lines, or places in a list).

    JSON lines, a JSON list, or plain lines of text. Without FIELD an object's first of messages,
    prompt, question, instruction (with its input) and text counts.

    Raises:
        TrainingError: naming the file, the line and what is wrong.
    """
    path, field, first, last = _locate(spec)
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as error:
        raise TrainingError(f"prompts: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TrainingError(f"prompts: {path} is no UTF-8: {error}") from error
    name = f"{path.parent.name}/{path.name}" if path.parent.name else path.name
    prompts = []
    for number, entry in _entries(path, text):
        if not first <= number <= last:
            continue
        try:
            prompts.append(_prompt(entry, field, name))
        except TrainingError as error:
            raise TrainingError(f"{path}:{number}: {error}") from error
    if not prompts:
        raise TrainingError(f"prompts: {path} has none")
    return Source(name, hashlib.sha256(content).hexdigest(), tuple(prompts))


def encode(
    prompts: Iterable[Prompt], tokenizer: PreTrainedTokenizerBase, longest: int
) -> Iterator[EncodedPrompt]:
    """The prompts as the target reads them, each once.

    Args:
        prompts: any number.
        tokenizer: with the target's chat template; without one, texts stand for themselves.
        longest: tokens, template included; longer prompts are left out.
    """
    seen: set[str] = set()
    for prompt in prompts:
        ids = encode_messages(prompt.messages, tokenizer)
        digest = digest_of(ids)
        if ids and len(ids) <= longest and digest not in seen:
            seen.add(digest)
            yield EncodedPrompt(tuple(ids), prompt.source, digest, prompt.group or digest)


def encode_messages(messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of a conversation with the opening of the response behind it."""
    encoded: Any
    if tokenizer.chat_template is not None:
        turns = [{"role": role, "content": content} for role, content in messages]
        encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
    else:
        encoded = tokenizer("\n".join(content for _, content in messages))
    return [int(token) for token in encoded["input_ids"]]


def _locate(spec: str) -> tuple[Path, str | None, int, float]:
    """Path, field, and the first and last place."""
    found = None if Path(spec).expanduser().is_file() else _SPEC.fullmatch(spec)
    if found is None:
        return Path(spec).expanduser(), None, 1, math.inf
    path, field, first, last = found.groups()
    return Path(path).expanduser(), field, int(first or 1), int(last) if last else math.inf


def _entries(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".json":
        entries = _parse(path, 1, text)
        if not isinstance(entries, list):
            raise TrainingError(f"{path}: is no JSON list")
        yield from enumerate(entries, start=1)
        return
    for number, line in enumerate(text.split("\n"), start=1):  # other breaks stand in texts
        if line.strip():
            yield number, _parse(path, number, line) if path.suffix == ".jsonl" else line.strip()


def _parse(path: Path, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TrainingError(f"{path}:{number}: is no JSON: {error}") from error


def _prompt(entry: Any, field: str | None, source: str) -> Prompt:
    if isinstance(entry, str):
        return Prompt.user(_text(entry, "line"), source)
    if not isinstance(entry, dict):
        raise TrainingError("is neither a text nor a JSON object")
    name = field or next((name for name in FIELDS if name in entry), None)
    if name is None or name not in entry:
        expected = field or "one of " + ", ".join(FIELDS)
        raise TrainingError(
            f"has the fields {', '.join(map(str, entry)) or 'none'}, not {expected}"
        )
    if name == "messages":
        return _conversation(entry, source)
    text = _text(entry[name], name)
    given = entry.get("input", _first_input(entry)) if name == "instruction" else ""
    return Prompt.user(f"{text}\n\n{given}".strip() if given else text, source)


def _first_input(entry: dict[str, Any]) -> str:
    """Of self-instruct's files, which keep the input with its first instance."""
    instances = entry.get("instances")
    if isinstance(instances, list) and instances and isinstance(instances[0], dict):
        return str(instances[0].get("input", ""))
    return ""


def _conversation(entry: dict[str, Any], source: str) -> Prompt:
    messages = entry["messages"]
    if not isinstance(messages, list) or not messages:
        raise TrainingError("messages: must be a list with at least one entry")
    turns: list[Message] = []
    for message in messages:
        if isinstance(message, dict):
            message = [message.get("role"), message.get("content")]
        if not isinstance(message, list) or len(message) != 2:
            raise TrainingError(f"messages: {message!r} is no pair of role and content")
        turns.append((_text(message[0], "role"), _text(message[1], "content")))
    group = entry.get("group")
    return Prompt(
        tuple(turns), str(entry.get("source", source)), None if group is None else str(group)
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TrainingError(f"{name}: must be a text that is not empty, given {value!r}")
    return value
