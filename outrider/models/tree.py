"""Attention of token trees, exact to the bit.

Every row walks the keys of its own path in position order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.models.attention import (
    MIN_ROWS,
    MaskedPiece,
    Shape,
    block_scores,
    block_values,
    hide,
    soften,
)
from outrider.models.cache import BLOCK, KVCache, blocks_for


def depths_of(parents: Sequence[int]) -> list[int]:
    """Depth of each row below the last cached row; rows with parent -1 have depth 0."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def is_chain(parents: Sequence[int]) -> bool:
    """Whether each row follows the one before it."""
    return all(parent == row - 1 for row, parent in enumerate(parents))


def masked_tree(
    cache: KVCache, start: int, parents: Sequence[int], device: torch.device
) -> MaskedPiece:
    """One call under the ancestor mask. Masked keys lie between a row's own.

    Right, but for its last bits.
    """
    rows, old = len(parents), cache.length
    visible = torch.zeros(rows, blocks_for(old + rows) * BLOCK, dtype=torch.bool)
    visible[:, :old] = True
    position = torch.arange(visible.shape[1])
    depth = torch.tensor(depths_of(parents))
    position[old : old + rows] = old + depth
    for row, parent in enumerate(parents):
        if parent >= 0:
            visible[row] |= visible[parent]
        visible[row, old + row] = True
    distance = (old + depth)[:, None] - position
    return MaskedPiece(cache, start, start + rows, visible.to(device), distance.to(device))


@dataclass
class PathPiece:
    """A tree whose root-to-leaf paths are chains of their own; a node is computed in the first path
    that holds it.

    The blocks that are full of committed rows are shared by all rows; from there on each path has
    its own copy of the keys. Shapes: tail [paths, tail blocks * BLOCK] cache rows, own [paths,
    slots] nodes (padded with 0), slot [rows] place of each node in `own`, position [rows] of each
    node.
    """

    cache: KVCache
    start: int
    stop: int
    shared: int
    tail: Tensor
    own: Tensor
    slot: Tensor
    position: Tensor
    _biases: dict[int | None, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, queries: Tensor, shape: Shape) -> Tensor:
        """See `Piece`."""
        keys, values = self.cache.rows(layer, self.tail)
        scores = self._tail_scores(queries, self._as_blocks(keys))
        if self.shared:
            # At least two nodes make a tree; with one group that is fewer rows than a product
            # needs.
            shared_keys, shared_values = self.cache.blocks(layer, self.shared)
            rows = queries.shape[2]
            missing = max(0, -(-MIN_ROWS // queries.shape[1]) - rows)
            wide = torch.nn.functional.pad(queries, (0, 0, 0, missing))
            scores = torch.cat([block_scores(wide, shared_keys)[:, :, :rows], scores], dim=-1)
        weights = soften(scores, self._bias(shape.window), shape)
        split = self.shared * BLOCK
        total = None
        if self.shared:
            head = torch.nn.functional.pad(weights[..., :split], (0, 0, 0, missing))
            total = block_values(head.contiguous(), shared_values)[:, :, :rows]
        return self._tail_values(weights[..., split:], self._as_blocks(values), total)

    def _as_blocks(self, rows: Tensor) -> Tensor:
        """[paths, keys, heads, dim] -> [paths, blocks, heads, BLOCK, dim]."""
        return rows.view(rows.shape[0], -1, BLOCK, *rows.shape[2:]).transpose(2, 3)

    def _tail_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores of each node against its path's own keys: [heads, groups, rows, tail keys]."""
        heads, groups, _, dim = queries.shape
        paths, slots = self.own.shape
        blocks = keys.shape[1]
        left = (
            queries[:, :, self.own]
            .permute(2, 0, 1, 3, 4)
            .reshape(paths, 1, heads, groups * slots, dim)
        )
        left = left.expand(-1, blocks, -1, -1, -1).reshape(-1, groups * slots, dim)
        # The layout of the cache's own blocks: another one takes a kernel with other bits.
        right = keys.mT.contiguous().reshape(-1, dim, BLOCK)
        scores = torch.bmm(left, right).float()
        scores = scores.view(paths, blocks, heads, groups, slots, BLOCK).permute(2, 3, 0, 4, 1, 5)
        return scores.reshape(heads, groups, paths * slots, blocks * BLOCK)[:, :, self.slot]

    def _tail_values(self, weights: Tensor, values: Tensor, total: Tensor | None) -> Tensor:
        """Adds the path's own part, block by block, to `total` [heads, groups, rows, dim]."""
        heads, groups = weights.shape[:2]
        paths, slots = self.own.shape
        blocks, dim = values.shape[1], values.shape[-1]
        left = (
            weights[:, :, self.own]
            .view(heads, groups, paths, slots, blocks, BLOCK)
            .permute(2, 4, 0, 1, 3, 5)
        )
        left = left.reshape(-1, groups * slots, BLOCK).to(values.dtype)
        parts = torch.bmm(left, values.reshape(-1, BLOCK, dim)).float()
        parts = parts.view(paths, blocks, heads, groups, slots, dim).permute(1, 2, 3, 0, 4, 5)
        for part in parts.reshape(blocks, heads, groups, paths * slots, dim)[:, :, :, self.slot]:
            total = part if total is None else total + part
        assert total is not None
        return total

    def _bias(self, window: int | None) -> Tensor:
        bias = self._biases.get(window)
        if bias is None:
            keys = self.shared * BLOCK + self.tail.shape[1]
            distance = self.position[:, None] - torch.arange(keys, device=self.position.device)
            visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
            bias = self._biases[window] = hide(visible)
        return bias


def exact_tree(
    cache: KVCache, start: int, parents: Sequence[int], groups: int, device: torch.device
) -> PathPiece:
    """The piece that computes a tree path by path.

    Args:
        cache: the session's cache; its length is that before the tree.
        start: first row of the segment in the pack.
        parents: parent of each row within the segment; -1 follows the last cached row.
        groups: query heads for each key-value head.
        device: where the index tensors go.
    """
    rows, old = len(parents), cache.length
    depths = depths_of(parents)
    leaves = [row for row in range(rows) if row not in set(parents)]
    shared = old // BLOCK
    tail_rows = blocks_for(old - shared * BLOCK + max(depths) + 1) * BLOCK
    tail, owned, taken = [], [], set[int]()
    for leaf in leaves:
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        owned.append([node for node in path if node not in taken])
        taken.update(path)
        keys = [*range(shared * BLOCK, old), *(old + node for node in path)]
        tail.append(keys + [keys[0]] * (tail_rows - len(keys)))
    slots = max(-(-MIN_ROWS // groups), *map(len, owned)) if owned else 0
    slot = torch.zeros(rows, dtype=torch.long)
    for path_index, nodes in enumerate(owned):
        for place, node in enumerate(nodes):
            slot[node] = path_index * slots + place
    own = torch.tensor([nodes + [0] * (slots - len(nodes)) for nodes in owned], device=device)
    position = old + torch.tensor(depths, device=device)
    indices = torch.tensor(tail, device=device)
    return PathPiece(cache, start, start + rows, shared, indices, own, slot.to(device), position)
