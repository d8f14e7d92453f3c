"""Prompt files, pieces of text, and what a result file says about its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from outrider.cli.pieces import Pieces
from outrider.cli.prompts import Prompt, PromptFileError, read_prompts
from outrider.cli.provenance import command_line, facts


def written(folder: Path, text: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(text.encode())
    return path


def test_spec_bench_lines_become_chats_of_their_first_turn(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"question_id": 81, "category": "writing", "turns": ["first", "second"]}\n'
    )
    assert read_prompts(path) == [Prompt("81", "writing", "first", chat=True)]


def test_lines_with_a_prompt_are_raw_text_unless_told_otherwise(tmp_path: Path) -> None:
    path = written(tmp_path, '\n{"prompt": "a\u2028b"}\n\n{"prompt": "c", "category": "x"}\n')
    assert read_prompts(path) == [
        Prompt("2", "none", "a\u2028b", chat=False),
        Prompt("4", "x", "c", chat=False),
    ]
    assert all(prompt.chat for prompt in read_prompts(path, chat=True))


def test_the_limit_takes_the_first_and_reads_no_further(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt": "a"}\nnonsense\n')
    assert [prompt.text for prompt in read_prompts(path, 1)] == ["a"]


def test_a_file_that_is_missing_is_named_without_an_error_number(tmp_path: Path) -> None:
    path = tmp_path / "nothing.jsonl"
    with pytest.raises(PromptFileError) as caught:
        read_prompts(path)
    assert str(caught.value) == f"prompts: {path} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "Expecting value"),
        ("[1]", "is not a JSON object"),
        ("{}", "must have either turns or prompt"),
        ('{"prompt": "a", "turns": ["b"]}', "must have either turns or prompt"),
        ('{"prompt": ""}', "prompt: must be a text that is not empty"),
        ('{"prompt": 3}', "prompt: must be a text"),
        ('{"turns": []}', "turns: must be a list with at least one"),
        ('{"turns": [1]}', r"turns\[0\]: must be a text"),
        ('{"prompt": "a", "category": 1}', "category: must be a text"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(line: str, why: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(PromptFileError, match=rf"prompts\.jsonl:2: .*{why}"):
        read_prompts(path)


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(PromptFileError, match=r"prompts\.jsonl:1: "):
        read_prompts(path)


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="has no prompts"):
        read_prompts(written(tmp_path, "\n"))


def by_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def test_bytes_of_one_character_wait_for_the_last_of_them() -> None:
    pieces = Pieces(by_bytes)
    assert [pieces.add(token) for token in "aé€b".encode()] == ["a", "", "é", "", "", "€", "b"]
    assert pieces.rest() == ""


def test_a_character_that_never_is_whole_is_shown_as_such() -> None:
    pieces = Pieces(by_bytes)
    assert pieces.add(0xE2) == ""
    assert pieces.rest() == "\ufffd"


def test_a_result_file_says_where_it_comes_from() -> None:
    found = facts()
    assert set(found) == {"versions", "commit", "command_line", "machine"}
    assert {"python", "outrider", "torch", "transformers", "grpcio"} <= set(found["versions"])
    assert found["machine"]["cores"] >= 1


def test_a_command_line_is_stored_without_its_secrets() -> None:
    typed = [
        "/bin/outrider",
        "bench",
        "--token",
        "a",
        "--token=b",
        "--redis-url",
        "redis://u:p@h/0",
        "x y",
    ]
    assert (
        command_line(typed)
        == "outrider bench --token '***' '--token=***' --redis-url 'redis://***@h/0' 'x y'"
    )


def test_a_command_line_is_stored_without_the_folders_of_one_machine() -> None:
    typed = ["/a/bench.py", "--peer", "engine=/home/u/venv/bin/python", "--out", "/mnt/x/r.json"]
    typed += ["--prompts", "benchmarks/data/p.jsonl", "--redis-url", "redis://h/0"]
    assert command_line(typed) == (
        "bench.py --peer engine=.../python --out .../r.json "
        "--prompts benchmarks/data/p.jsonl --redis-url redis://h/0"
    )
