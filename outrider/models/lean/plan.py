"""What the attention kernels need to know of a pack of rows, as arrays, once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.models.cache import KVCache
from outrider.models.pool import BLOCK
from outrider.models.segment import Segment
from outrider.models.tree import depths_of, is_chain

Index = npt.NDArray[np.int64]
TILE = 4
"""Most rows of a segment that go over the keys together."""


@dataclass(frozen=True)
class View:
    """Which cached rows each row sees: `begin` up to `past` [rows], and `path`[path_start[row]] up
    to path_start[row + 1], ascending, behind `past`."""

    begin: Index
    past: Index
    path_start: Index
    path: Index

    @property
    def arrays(self) -> tuple[Index, ...]:
        """As the kernels take them."""
        return self.begin, self.past, self.path_start, self.path


@dataclass
class Plan:
    """Rows of all segments, one after the other.

    Shapes: positions, segment, block, place [rows]; tables [segments, blocks]; tiles [tiles + 1].
    """

    positions: Index
    segment: Index
    block: Index
    place: Index
    tables: Index
    tiles: Index
    _whole: View
    _views: dict[int, View] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[Index, ...]:
        """As the kernels take them."""
        return self.block, self.place, self.tables, self.tiles, self.segment

    def view(self, window: int | None) -> View:
        """What rows see where a layer attends to the last `window` positions; all where None."""
        if window is None:
            return self._whole
        if window not in self._views:
            self._views[window] = self._windowed(window)
        return self._views[window]

    def _windowed(self, window: int) -> View:
        whole = self._whole
        oldest = np.maximum(self.positions - window + 1, 0)
        begin = np.minimum(np.maximum(whole.begin, oldest), whole.past)
        # A row's path ends with itself, so its i-th last entry stands i positions in front of it.
        owner = np.repeat(np.arange(len(self.positions)), np.diff(whole.path_start))
        behind = whole.path_start[owner + 1] - 1 - np.arange(len(whole.path))
        kept = behind < window
        counts = np.bincount(owner[kept], minlength=len(self.positions))
        start = np.concatenate([[0], np.cumsum(counts)])
        return View(begin, whole.past, start, whole.path[kept])


@dataclass(frozen=True)
class Part:
    """Rows of one session: where each is written, its position, how many cached rows it sees, and
    which others behind these, ascending, itself included."""

    cache: KVCache
    slots: Index
    positions: Index
    past: Index
    paths: Sequence[Sequence[int]]


def plan(segments: Sequence[Segment]) -> Plan:
    """The plan of a pack; each cache has its old length and room for the segment's rows."""
    return assemble([_part(segment) for segment in segments])


def assemble(parts: Sequence[Part]) -> Plan:
    """The plan of the rows of several sessions, one after the other."""
    tiles = [0]
    for part in parts:
        rows = len(part.slots)
        count = -(-rows // TILE)
        tiles += [tiles[-1] + rows * part // count for part in range(1, count + 1)]
    slot = _together([part.slots for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part.slots) for part in parts])
    paths = [path for part in parts for path in part.paths]
    tables = _tables([part.cache for part in parts])
    whole = View(
        np.zeros(len(slot), np.int64),
        _together([part.past for part in parts]),
        np.array([0, *accumulate(map(len, paths))]),
        np.array([row for path in paths for row in path], np.int64),
    )
    block = tables[owner, slot // BLOCK]
    positions = _together([part.positions for part in parts])
    return Plan(positions, owner, block, slot % BLOCK, tables, np.array(tiles), whole)


def _together(parts: Sequence[Index]) -> Index:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def chain_part(cache: KVCache, rows: int) -> Part:
    """Rows that follow one another behind what is cached."""
    own = np.arange(cache.length, cache.length + rows)
    return Part(cache, own, own, own + 1, [()] * rows)


def _part(segment: Segment) -> Part:
    old, rows = segment.cache.length, len(segment.tokens)
    if is_chain(segment.parents):
        return chain_part(segment.cache, rows)
    positions = old + np.asarray(depths_of(segment.parents))
    own = np.arange(old, old + rows)
    return Part(segment.cache, own, positions, np.full(rows, old), _paths(segment.parents, old))


def _paths(parents: Sequence[int], old: int) -> list[list[int]]:
    """For each row of a tree the cached rows from its root to itself."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), old + row])
    return paths


def _tables(caches: Sequence[KVCache]) -> npt.NDArray[Any]:
    if len(caches) == 1:
        return np.array([caches[0].table])
    tables = np.zeros((len(caches), max(len(cache.table) for cache in caches)), np.int64)
    for index, cache in enumerate(caches):
        tables[index, : len(cache.table)] = cache.table
    return tables
