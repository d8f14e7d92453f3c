"""Finished sequences survive whatever ends the process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.training.material import record
from training.files import TrainingError, alone
from training.records import Record, is_held_out, split
from training.shards import Corpus, pack, read_corpus, unpack


def records(count: int, length: int = 12, top: int = 1000) -> list[Record]:
    rng = np.random.default_rng(0)
    return [record(rng.integers(0, top, length).tolist()) for _ in range(count)]


def same(found: list[Record], expected: list[Record]) -> bool:
    return [vars(r) | {"ids": r.ids.tolist()} for r in found] == [
        vars(r) | {"ids": r.ids.tolist()} for r in expected
    ]


def corpus(folder: Path, tokens: int = 50) -> Corpus:
    made = Corpus(folder, {"commit": "abc"}, shard_tokens=tokens)
    made.resume()
    return made


@pytest.mark.parametrize("top", [1000, 1 << 20])
def test_a_shard_gives_back_what_was_packed(tmp_path: Path, top: int) -> None:
    path = tmp_path / "shard-00000.xz"
    path.write_bytes(pack(records(5, top=top)))
    assert same(unpack(path), records(5, top=top))


def test_sequences_of_shards_and_journal_come_back_in_order(tmp_path: Path) -> None:
    made = corpus(tmp_path)
    for entry in records(7):
        made.add(entry)
    assert len(list(tmp_path.glob("shard-*.xz"))) == 1
    assert same(list(read_corpus(tmp_path)), records(7))
    about = json.loads((tmp_path / "shard-00000.json").read_text())
    assert about == {"sequences": 5, "tokens": 60, "commit": "abc"}


def test_a_line_cut_short_by_a_kill_is_no_sequence_and_is_written_anew(tmp_path: Path) -> None:
    made = corpus(tmp_path, 10_000)
    for entry in records(3):
        made.add(entry)
    journal = tmp_path / "journal-00000.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content[:-20])
    assert same(list(read_corpus(tmp_path)), records(3)[:2])
    again = Corpus(tmp_path, shard_tokens=10_000)
    done = again.resume()
    for entry in records(3):
        if entry.digest not in done:
            again.add(entry)
    again.seal()
    assert same(list(read_corpus(tmp_path)), records(3))


def test_killed_between_shard_and_journals_end_nothing_comes_twice(tmp_path: Path) -> None:
    made = corpus(tmp_path, 10_000)
    for entry in records(3):
        made.add(entry)
    journal = (tmp_path / "journal-00000.jsonl").read_bytes()
    made.seal()
    (tmp_path / "journal-00000.jsonl").write_bytes(journal)
    assert same(list(read_corpus(tmp_path)), records(3))
    assert len(corpus(tmp_path).resume()) == 3
    assert not (tmp_path / "journal-00000.jsonl").exists()


def test_a_temporary_file_left_by_a_kill_does_no_harm(tmp_path: Path) -> None:
    made = corpus(tmp_path, 10_000)
    made.add(records(1)[0])
    (tmp_path / ".shard-00000.xz.part").write_bytes(pack(records(1))[:30])
    made.seal()
    assert same(list(read_corpus(tmp_path)), records(1))


def test_a_damaged_shard_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.xz"
    path.write_bytes(pack(records(5))[:-30])
    with pytest.raises(TrainingError, match=r"shard-00000\.xz: is no shard"):
        list(read_corpus(tmp_path))


def test_ids_take_no_more_than_two_bytes_a_token(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [record((rng.zipf(1.2, 300) % 49152).tolist()) for _ in range(50)]
    assert len(pack(texts)) < 2 * 300 * 50


def test_the_split_is_stable_and_about_one_in_twenty() -> None:
    sides = [is_held_out(f"{number:016x}") for number in range(4000)]
    assert 0.035 < sum(sides) / 4000 < 0.065
    assert [n for n in range(100) if sides[n]] == [1, 27, 41, 43, 74, 92]


def test_what_was_made_from_a_prompt_stands_on_its_side() -> None:
    origin = next(r for r in records(200) if r.held_out)
    made = Record(np.array([5, 6, 7]), 1, "greedy", "task", "other", origin.digest, "eos")
    train, held_out = split([made])
    assert not train
    assert held_out == [made]


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(TrainingError, match="another process"), alone(tmp_path):
        pass
