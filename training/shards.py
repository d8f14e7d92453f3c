"""Finished sequences on disk.

A corpus is a folder. The newest sequences stand in `journal-N.jsonl`, a line each, written as they
finish: a process that is killed loses at most the line it was writing. At `SHARD_TOKENS` the
journal becomes `shard-N.xz`, and then goes. A shard is LZMA over a line of JSON (the columns) and
the ids, two bytes each (four where an id needs them): about 0.8 bytes a token of English text.
Beside it `shard-N.json` tells where they come from.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from outrider.files import replace, replace_json
from training.files import TrainingError
from training.records import Record

SHARD_TOKENS = 1 << 18
_COLUMNS = ("prompt_length", "mode", "source", "digest", "group", "end")
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 1, "pb": 1}]


@dataclass
class Corpus:
    """A folder of sequences; one process may add to it (see `training.files.alone`).

    Args:
        folder: made where it is missing.
        provenance: told beside each shard: target, weights, numerics, recipe, sources.
        shard_tokens: after which a journal becomes a shard.
    """

    folder: Path
    provenance: dict[str, Any] = field(default_factory=dict)
    shard_tokens: int = SHARD_TOKENS
    _tokens: int = 0
    _number: int = 0

    def resume(self) -> set[str]:
        """Prepares to add behind what is there; digests of all prompts that are answered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = [_number(path) for path in self.folder.glob("shard-*.xz")]
        self._number = max(numbers, default=-1) + 1
        for path in self.folder.glob("journal-*.jsonl"):
            if _number(path) < self._number:  # sealed, and killed before it went
                path.unlink()
        kept = list(_read_journal(self._journal)) if self._journal.exists() else []
        if kept:
            replace(self._journal, lambda path: _write_lines(path, kept))
        self._tokens = sum(len(record.ids) for record in kept)
        return {record.digest for record in read_corpus(self.folder)}

    def add(self, record: Record) -> None:
        """Writes a finished sequence; it survives the process once this returns."""
        with self._journal.open("a") as journal:
            journal.write(_line(record))
        self._tokens += len(record.ids)
        if self._tokens >= self.shard_tokens:
            self.seal()

    def seal(self) -> None:
        """Makes a shard of the journal; nothing happens where it is empty."""
        records = list(_read_journal(self._journal)) if self._journal.exists() else []
        if not records:
            return
        shard = self.folder / f"shard-{self._number:05d}.xz"
        tokens = sum(len(record.ids) for record in records)
        about = {"sequences": len(records), "tokens": tokens, **self.provenance}
        replace_json(shard.with_suffix(".json"), about)
        replace(shard, lambda path: _write_bytes(path, pack(records)))
        self._journal.unlink()
        self._number += 1
        self._tokens = 0

    @property
    def _journal(self) -> Path:
        return self.folder / f"journal-{self._number:05d}.jsonl"


def read_corpus(folder: Path) -> Iterator[Record]:
    """All sequences in the order in which they were added, those of the journal last.

    Raises:
        TrainingError: a shard is damaged.
    """
    shards = sorted(folder.glob("shard-*.xz"))
    for path in shards:
        yield from unpack(path)
    sealed = {_number(path) for path in shards}
    for path in sorted(folder.glob("journal-*.jsonl")):
        if _number(path) not in sealed:
            yield from _read_journal(path)


def pack(records: list[Record]) -> bytes:
    """A shard's bytes."""
    columns: dict[str, Any] = {name: [getattr(r, name) for r in records] for name in _COLUMNS}
    columns["group"] = ["" if r.group == r.digest else r.group for r in records]
    for name in ("mode", "source", "end"):
        names = sorted(set(columns[name]))
        columns[name] = [names, [names.index(value) for value in columns[name]]]
    ids = np.concatenate([record.ids for record in records])
    width = 2 if ids.max(initial=0) < 1 << 16 else 4
    columns |= {"length": [len(record.ids) for record in records], "bytes_per_id": width}
    head = json.dumps(columns, separators=(",", ":")).encode() + b"\n"
    return lzma.compress(
        head + ids.astype(f"<u{width}").tobytes(), format=lzma.FORMAT_XZ, filters=_XZ
    )


def unpack(path: Path) -> list[Record]:
    """The records of a shard.

    Raises:
        TrainingError: it is damaged.
    """
    try:
        head, _, body = lzma.decompress(path.read_bytes()).partition(b"\n")
        columns = json.loads(head)
        width = columns["bytes_per_id"]
        for name in ("mode", "source", "end"):
            names, places = columns[name]
            columns[name] = [names[place] for place in places]
        ids = np.frombuffer(body, f"<u{width}").astype(np.int64)
        ends = np.cumsum(columns["length"])
        if len(ids) != ends[-1]:
            raise ValueError(f"has {len(ids)} ids for {ends[-1]} in its columns")
        rows = zip(np.split(ids, ends[:-1]), *(columns[name] for name in _COLUMNS), strict=True)
        return [
            Record(row, length, mode, source, digest, group or digest, end)
            for row, length, mode, source, digest, group, end in rows
        ]
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as error:
        raise TrainingError(f"{path}: is no shard, or damaged: {error}") from error


def _line(record: Record) -> str:
    columns = {name: getattr(record, name) for name in _COLUMNS}
    return json.dumps({**columns, "ids": record.ids.tolist()}, separators=(",", ":")) + "\n"


def _read_journal(path: Path) -> Iterator[Record]:
    """The whole lines; one that a kill cut short is no sequence."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            entry = json.loads(line)
            yield Record(np.array(entry.pop("ids"), np.int64), **entry)


def _write_lines(path: Path, records: Iterable[Record]) -> None:
    path.write_text("".join(map(_line, records)))


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])
