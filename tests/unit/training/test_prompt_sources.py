"""Prompts from files, as the ids that a target reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import tiny_tokenizer
from training.files import TrainingError
from training.prompts import Prompt, encode, read_source

CHAT = (
    "{% for m in messages %}w10 {{ m['content'] }} w11 {% endfor %}"
    "{% if add_generation_prompt %}w12{% endif %}"
)


def texts(path: Path, content: str, spec: str = "") -> list[str]:
    path.write_text(content)
    return [p.messages[-1][1] for p in read_source(f"{path}{spec}").prompts]


def test_lines_lists_and_objects_are_read(tmp_path: Path) -> None:
    lines = [
        {"prompt": "a"},
        {"question": "b", "answer": "no"},
        {"instruction": "c", "input": "d"},
        {"instruction": "e", "instances": [{"input": "f"}]},
        {"text": "g"},
        "h",
    ]
    wanted = ["a", "b", "c\n\nd", "e\n\nf", "g", "h"]
    content = "\n".join(map(json.dumps, lines)) + "\n\n"
    assert texts(tmp_path / "x.jsonl", content) == wanted
    assert texts(tmp_path / "x.json", json.dumps(lines)) == wanted
    assert texts(tmp_path / "x.txt", "one\n\n two \n") == ["one", "two"]


def test_breaks_within_a_text_do_not_end_its_line(tmp_path: Path) -> None:
    content = '{"prompt": "a\u2028b\x85c"}\n{"prompt": "d"}'
    assert texts(tmp_path / "x.jsonl", content) == ["a\u2028b\x85c", "d"]


def test_a_field_can_be_named(tmp_path: Path) -> None:
    content = '{"prompt": "a", "other": "b"}'
    assert texts(tmp_path / "x.jsonl", content, ":other") == ["b"]


def test_a_part_of_a_file_can_be_named(tmp_path: Path) -> None:
    content = "\n".join(json.dumps({"text": str(n)}) for n in range(1, 9))
    assert texts(tmp_path / "x.jsonl", content, ":text:3-5") == ["3", "4", "5"]
    assert texts(tmp_path / "x.jsonl", content, ":7-9") == ["7", "8"]


def test_conversations_keep_turns_source_and_group(tmp_path: Path) -> None:
    prompt = Prompt((("user", "a"), ("assistant", "b"), ("user", "c")), "task/x", "0123")
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(prompt.to_json()))
    assert read_source(str(path)).prompts == (prompt,)


@pytest.mark.parametrize(
    ("content", "spec", "message"),
    [
        ('{"prompt": "a"}\n{"prompt": ', "", r"x\.jsonl:2: is no JSON"),
        ('{"prompt": "a"}\n{"foo": 1}', "", r"x\.jsonl:2: has the fields foo, not one of"),
        ('{"prompt": "a"}', ":nope", r"x\.jsonl:1: has the fields prompt, not nope"),
        ('{"prompt": "  "}', "", r"x\.jsonl:1: prompt: must be a text that is not empty"),
        ('{"messages": [["user"]]}', "", r"x\.jsonl:1: messages: \['user'\] is no pair"),
        ("3", "", r"x\.jsonl:1: is neither"),
        ("\n", "", r"x\.jsonl has none"),
    ],
)
def test_bad_files_are_refused_by_line(
    tmp_path: Path, content: str, spec: str, message: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(TrainingError, match=message):
        read_source(f"{path}{spec}")
    with pytest.raises(TrainingError, match="cannot be read"):
        read_source(str(tmp_path / "missing.jsonl"))


def test_the_chat_template_is_applied_and_equal_or_long_prompts_go() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = CHAT
    prompts = [Prompt.user("w1 w2", "x"), Prompt.user("w1  w2", "y"), Prompt.user("w1 " * 9, "z")]
    (found,) = encode(prompts, tokenizer, 8)
    assert found.ids == (10, 1, 2, 11, 12)
    assert found.group == found.digest
    tokenizer.chat_template = None
    assert [p.ids for p in encode(prompts, tokenizer, 8)] == [(1, 2)]
