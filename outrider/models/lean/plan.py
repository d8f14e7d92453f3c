"""What the attention kernels need to know of a pack of rows, as arrays, once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.models.pool import BLOCK
from outrider.models.segment import Segment
from outrider.models.tree import depths_of, is_chain

Index = npt.NDArray[np.int64]
TILE = 4
"""Rows of a segment that go over the keys together."""


@dataclass(frozen=True)
class View:
    """Which cached rows each row sees: `begin` up to `past` [rows], and `path`[path_start[row]] up
    to path_start[row + 1], ascending, behind `past`."""

    begin: Index
    past: Index
    path_start: Index
    path: Index


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


def plan(segments: Sequence[Segment]) -> Plan:
    """The plan of a pack; each cache has its old length and room for the segment's rows."""
    positions, owner, slots, past, tiles = [], [], [], [], [0]
    paths: list[list[int]] = []
    for index, segment in enumerate(segments):
        old, rows = segment.cache.length, len(segment.tokens)
        own = np.arange(old, old + rows)
        slots.append(own)
        owner.append(np.full(rows, index))
        tiles += [tiles[-1] + end for end in [*range(TILE, rows, TILE), rows]]
        if is_chain(segment.parents):
            positions.append(own)
            past.append(own + 1)
            paths += [[]] * rows
        else:
            positions.append(old + np.asarray(depths_of(segment.parents)))
            past.append(np.full(rows, old))
            paths += _paths(segment.parents, old)
    slot, segment_of = np.concatenate(slots), np.concatenate(owner)
    tables = _tables(segments)
    whole = View(
        np.zeros(len(slot), np.int64),
        np.concatenate(past),
        np.cumsum([0, *map(len, paths)]),
        np.array([row for path in paths for row in path], np.int64),
    )
    block = tables[segment_of, slot // BLOCK]
    return Plan(
        np.concatenate(positions), segment_of, block, slot % BLOCK, tables, np.array(tiles), whole
    )


def _paths(parents: Sequence[int], old: int) -> list[list[int]]:
    """For each row of a tree the cached rows from its root to itself."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), old + row])
    return paths


def _tables(segments: Sequence[Segment]) -> npt.NDArray[Any]:
    tables = np.zeros((len(segments), max(len(s.cache.table) for s in segments)), np.int64)
    for index, segment in enumerate(segments):
        tables[index, : len(segment.cache.table)] = segment.cache.table
    return tables
