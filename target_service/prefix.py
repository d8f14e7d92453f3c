"""Blocks of keys and values of earlier texts, found again by their tokens.

A tree of whole blocks: a node stands for the tokens of one block behind those of its parents, which
are compared, not hashed. A session takes over the blocks of the longest known beginning of its
prompt; they hold the very rows that its own prefill would compute.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.core.round import Features
from outrider.models.pool import BLOCK, KVPool
from target_service.session import FeatureRequest

Tokens = tuple[int, ...]
Taps = tuple[int, ...]


@dataclass
class Node:
    """A block, the features of its rows by the taps they were taken at, and when it was used."""

    tokens: Tokens
    block: int
    parent: Node | None
    children: dict[Tokens, Node] = field(default_factory=dict)
    features: dict[Taps, Features] = field(default_factory=dict)
    used: int = 0


class PrefixCache:
    """Keeps blocks of committed rows until others need the memory.

    Args:
        pool: whose blocks they are.
        limit: most blocks kept; 0 keeps none.
    """

    def __init__(self, pool: KVPool, limit: int) -> None:
        self._pool = pool
        self._limit = limit
        self._roots: dict[Tokens, Node] = {}
        self._clock = 0
        self.blocks = 0
        self.asked_rows = 0
        self.found_rows = 0

    def match(self, prompt: Sequence[int], wanted: FeatureRequest | None) -> list[Node]:
        """The nodes of the longest known beginning; at least the prompt's last token is left over.

        Where features are wanted, a block whose rows need them counts only if it has them.
        """
        found: list[Node] = []
        known = self._roots
        first = 0 if wanted is None or not wanted.window else len(prompt) - 1 - wanted.window
        for start in range(0, (len(prompt) - 1) // BLOCK * BLOCK, BLOCK):
            node = known.get(tuple(prompt[start : start + BLOCK]))
            if node is None:
                break
            if wanted and start + BLOCK > first and wanted.taps not in node.features:
                break
            found.append(node)
            known = node.children
        self._touch(found)
        self.asked_rows += len(prompt)
        self.found_rows += BLOCK * len(found)
        return found

    def add(
        self, tokens: Sequence[int], table: Sequence[int], taps: Taps, features: Sequence[Features]
    ) -> None:
        """Keeps the whole blocks of `tokens`, whose rows lie in the blocks of `table`."""
        parent, known = None, self._roots
        path: list[Node] = []
        for index in range(len(tokens) // BLOCK):
            start = index * BLOCK
            key = tuple(tokens[start : start + BLOCK])
            node = known.get(key)
            if node is None:
                if self.blocks >= self._limit and not self.evict(1, keep=path):
                    break
                node = known[key] = Node(key, self._pool.share(table[index]), parent)
                self.blocks += 1
            rows = _rows(features, start)
            if rows is not None:
                node.features[taps] = rows
            path.append(node)
            parent, known = node, node.children
        self._touch(path)

    def evict(self, blocks: int, keep: Sequence[Node] = ()) -> int:
        """Forgets the ends that nobody else holds, longest unused first; then others that nobody
        else holds, with all that hangs on them. Returns how many blocks that freed."""
        if blocks <= 0:
            return 0
        kept = {id(node) for node in keep}
        freed = self._evict_ends(blocks, kept)
        return freed if freed >= blocks else freed + self._evict_trees(blocks - freed, kept)

    def _evict_ends(self, blocks: int, kept: set[int]) -> int:
        ends = [(n.used, n.block, n) for n in self._nodes() if self._may_go(n)]
        heapq.heapify(ends)
        freed = 0
        while ends and freed < blocks:
            _, _, node = heapq.heappop(ends)
            if id(node) in kept:
                continue
            parent = node.parent
            freed += self._forget(node)
            if parent is not None and self._may_go(parent):
                heapq.heappush(ends, (parent.used, parent.block, parent))
        return freed

    def _evict_trees(self, blocks: int, kept: set[int]) -> int:
        """For blocks that stay for the sake of their children alone: two sessions computed the
        same beginning at once, and the children are blocks of the one whose beginning was not
        kept."""
        alone = [node for node in self._nodes() if self._pool.holders(node.block) == 1]
        gone: set[int] = set()
        freed = 0
        for node in sorted(alone, key=lambda node: node.used):
            below = {id(each) for each in _below(node)}
            if freed < blocks and id(node) not in gone and not below & kept:
                freed += self._forget(node)
                gone |= below
        return freed

    def _forget(self, node: Node) -> int:
        """Lets go of a node and all below it; returns how many blocks are free now."""
        before = self._pool.free
        del (node.parent.children if node.parent else self._roots)[node.tokens]
        for each in _below(node):
            self._pool.give(each.block)
            self.blocks -= 1
        return self._pool.free - before

    def _may_go(self, node: Node) -> bool:
        return not node.children and self._pool.holders(node.block) == 1

    def _nodes(self) -> Iterator[Node]:
        for root in [*self._roots.values()]:
            yield from _below(root)

    def _touch(self, nodes: Sequence[Node]) -> None:
        self._clock += 1
        for node in nodes:
            node.used = self._clock


def _below(node: Node) -> Iterator[Node]:
    """The node and all behind it."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.children.values()


def _rows(features: Sequence[Features], start: int) -> Features | None:
    """The features of the rows of the block at `start`, where the parts have them all."""
    parts = []
    for part in features:
        low, high = max(part.start, start), min(part.start + part.rows, start + BLOCK)
        if low < high:
            parts.append(part.rows_from(low, high - low))
    if sum(part.rows for part in parts) != BLOCK:
        return None
    data = b"".join(part.data for part in sorted(parts, key=lambda part: part.start))
    return Features(start, BLOCK, parts[0].width, data)
