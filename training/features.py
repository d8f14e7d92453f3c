"""The target's states for every token of a corpus, on disk: recomputed by prefill from the ids.

A folder has `index.json` and chunk files of rows [rows, width], one row a token: the inputs of the
layers tapped, in their order, then the state after the final norm. A chunk counts once the index
names it, so a process that is killed loses the chunk in the making.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.files import replace, replace_json
from outrider.models.progress import Progress, silent
from training.facts import Target
from training.files import TrainingError, read_json
from training.prefill import Prefill
from training.records import Record

CHUNK_ROWS = 1 << 15
SPARE_BYTES = 1 << 30
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class FeaturePlan:
    """What is stored of which target.

    taps: layers whose input is stored, ascending, and the number of layers for the final state.
    """

    weights_hash: str
    taps: tuple[int, ...]
    hidden_size: int
    dtype: str = "float16"

    @classmethod
    def of(cls, target: Target, taps: Sequence[int], dtype: str = "float16") -> FeaturePlan:
        """For a target; the final state is always among the taps.

        Raises:
            TrainingError: a tap or the dtype is none.
        """
        for tap in taps:
            if not 0 <= tap <= target.layers:
                raise TrainingError(f"taps: {tap}, limit 0 to {target.layers}")
        if dtype not in DTYPES:
            raise TrainingError(f"feature_dtype: {dtype!r}, limit one of {', '.join(DTYPES)}")
        wanted = tuple(sorted({*taps, target.layers}))
        return cls(target.weights_hash, wanted, target.hidden_size, dtype)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return len(self.taps) * self.hidden_size

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * DTYPES[self.dtype].itemsize

    def to_json(self) -> dict[str, Any]:
        """As the index names it."""
        return {**vars(self), "taps": list(self.taps)}

    def or_stored(self, folder: Path) -> FeaturePlan:
        """What `folder` has where that is enough, since more taps do no harm; or else this."""
        path = folder / "index.json"
        if not path.exists():
            return self
        stored = _plan(read_json(path))
        enough = set(self.taps) <= set(stored.taps) and stored.weights_hash == self.weights_hash
        return stored if enough else self


class FeatureCache:
    """Features of the sequences that its index names.

    Raises:
        TrainingError: the folder has no index, or a chunk is not as long as the index says.
    """

    def __init__(self, folder: Path) -> None:
        index = read_json(folder / "index.json")
        chunks = index.pop("chunks")
        self.folder = folder
        self.plan = _plan(index)
        self._places: dict[str, tuple[np.memmap[Any, Any], int, int]] = {}
        for chunk in chunks:
            path, rows = folder / chunk["file"], sum(chunk["rows"])
            found = path.stat().st_size if path.exists() else 0
            if found != rows * self.plan.row_bytes:
                expected = rows * self.plan.row_bytes
                raise TrainingError(f"{path}: has {found} bytes, the index says {expected}")
            # Copy on write, for torch wants memory that may be written to.
            memory = np.memmap(path, np.int16, "c", shape=(rows, self.plan.width))
            first = 0
            for digest, count in zip(chunk["digests"], chunk["rows"], strict=True):
                self._places[digest] = (memory, first, first + count)
                first += count

    def __contains__(self, digest: str) -> bool:
        return digest in self._places

    def rows(self, digest: str, taps: Sequence[int]) -> Tensor:
        """Features [n, taps * hidden] of a sequence, as stored.

        Raises:
            TrainingError: a tap is not stored.
        """
        memory, first, last = self._places[digest]
        stored = torch.from_numpy(memory[first:last]).view(DTYPES[self.plan.dtype])
        parts = stored.view(last - first, len(self.plan.taps), self.plan.hidden_size)
        missing = [tap for tap in taps if tap not in self.plan.taps]
        if missing:
            raise TrainingError(f"{self.folder}: has taps {self.plan.taps}, not {missing}")
        return parts[:, [self.plan.taps.index(tap) for tap in taps]].flatten(1)


def missing_from(folder: Path, plan: FeaturePlan, records: Sequence[Record]) -> list[Record]:
    """Those of `records` whose features are not in the folder yet.

    Raises:
        TrainingError: the folder holds features of another plan.
    """
    if not (folder / "index.json").exists():
        return list(records)
    cache = FeatureCache(folder)
    for name, value in vars(plan).items():
        stored = getattr(cache.plan, name)
        if stored != value:
            raise TrainingError(
                f"{folder}: {name} is {stored}, wanted {value}; take another folder"
            )
    return [record for record in records if record.digest not in cache]


def build_features(
    prefill: Prefill,
    records: Sequence[Record],
    folder: Path,
    plan: FeaturePlan,
    progress: Progress = silent,
) -> FeatureCache:
    """Adds what is missing; a second call goes on where the first was stopped.

    Raises:
        TrainingError: the disk has too little room, a state is too great for the dtype, or the
            folder holds features of another plan.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = missing_from(folder, plan, records)
    total = sum(len(record.ids) for record in wanted)
    check_room(folder, total * plan.row_bytes)
    path = folder / "index.json"
    index = read_json(path) if path.exists() else {**plan.to_json(), "chunks": []}
    done = 0
    for chunk in _grouped(wanted, CHUNK_ROWS):
        name = f"chunk-{len(index['chunks']):05d}.bin"
        features = _stored(prefill.rows(chunk, plan.taps), plan)
        content = features.view(torch.int16).numpy()
        replace(folder / name, content.tofile)
        rows = [len(record.ids) for record in chunk]
        index["chunks"].append(
            {"file": name, "digests": [record.digest for record in chunk], "rows": rows}
        )
        replace_json(path, index)
        done += sum(rows)
        progress("features", done, total)
    if not path.exists():
        replace_json(path, index)
    return FeatureCache(folder)


def check_room(folder: Path, needed: int) -> None:
    """Refuses before anything is written.

    Raises:
        TrainingError: with the bytes needed and free.
    """
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise TrainingError(
            f"{folder}: features take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free "
            f"({SPARE_BYTES / 1e9:.1f} GB are left alone); take another folder or fewer taps"
        )


def _plan(index: dict[str, Any]) -> FeaturePlan:
    fields = {name: index[name] for name in FeaturePlan.__dataclass_fields__}
    return FeaturePlan(**{**fields, "taps": tuple(index["taps"])})


def _grouped(records: Sequence[Record], limit: int) -> Iterator[list[Record]]:
    """Neighbours whose rows together do not pass the limit; a longer sequence stands alone."""
    group: list[Record] = []
    rows = 0
    for record in records:
        if group and rows + len(record.ids) > limit:
            yield group
            group, rows = [], 0
        group.append(record)
        rows += len(record.ids)
    if group:
        yield group


def _stored(states: Sequence[Tensor], plan: FeaturePlan) -> Tensor:
    """Rows [n, width] of sequences, one behind the other, on the CPU."""
    stored = torch.cat([rows.to(DTYPES[plan.dtype]) for rows in states])
    if not bool(torch.isfinite(stored).all()):
        greatest = max(float(rows.abs().max()) for rows in states)
        raise TrainingError(
            f"features: the greatest is {greatest:.0f}, too much for {plan.dtype}; take "
            "feature_dtype bfloat16"
        )
    return stored.cpu()
