"""Token trees as flat arrays.

Node 0 is the root, the last committed token; every other node is a drafted token. Parents come
before their children and siblings carry distinct tokens, so one left-to-right pass reaches every
node after its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


class TreeError(ValueError):
    """A token tree breaks one of its rules; the message names field, value and limit."""


@dataclass(frozen=True)
class TokenTree:
    """A root and the drafted nodes behind it.

    Args:
        tokens: token id of each node, root first.
        parents: node index of each node's parent; -1 for the root.

    Raises:
        TreeError: lengths differ, a parent does not come before its child, or siblings share a
            token.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise TreeError(
                f"tree.parents: {len(self.parents)} entries for {len(self.tokens)} tokens"
            )
        if not self.tokens or self.parents[0] != -1:
            raise TreeError("tree.parents: node 0 must be the root")
        seen: set[tuple[int, int]] = set()
        for node in range(1, len(self.tokens)):
            parent = self.parents[node]
            if not 0 <= parent < node:
                raise TreeError(
                    f"tree.parents: node {node} has parent {parent}, limit 0 to {node - 1}"
                )
            edge = (parent, self.tokens[node])
            if edge in seen:
                raise TreeError(f"tree.tokens: token {edge[1]} occurs twice below node {parent}")
            seen.add(edge)

    @classmethod
    def root_only(cls, root: int) -> TokenTree:
        """The empty proposal."""
        return cls((root,), (-1,))

    @classmethod
    def chain(cls, root: int, drafted: Sequence[int]) -> TokenTree:
        """A tree without branches."""
        return cls((root, *drafted), tuple(range(-1, len(drafted))))

    @classmethod
    def from_drafted(cls, root: int, tokens: Sequence[int], parents: Sequence[int]) -> TokenTree:
        """The wire's form: entry i of both sequences is node i+1."""
        return cls((root, *tokens), (-1, *parents))

    def __len__(self) -> int:
        """Nodes, root included."""
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Nodes without the root."""
        return len(self.tokens) - 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node as they stand; sampled ones in draw order."""
        lists: list[list[int]] = [[] for _ in self.tokens]
        for node in range(1, len(self.tokens)):
            lists[self.parents[node]].append(node)
        return tuple(tuple(nodes) for nodes in lists)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; 0 for the root."""
        depths = [0] * len(self.tokens)
        for node in range(1, len(self.tokens)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Greatest depth."""
        return max(self.depths)

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def path(self, node: int) -> tuple[int, ...]:
        """Node indices from the root's child down to `node`; empty for the root."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def child_with(self, node: int, token: int) -> int | None:
        """The child of `node` that carries `token`, if any."""
        for child in self.children[node]:
            if self.tokens[child] == token:
                return child
        return None


class TreeBuilder:
    """Grows a tree node by node, merging siblings that carry the same token."""

    def __init__(self, root: int) -> None:
        self._tokens = [root]
        self._parents = [-1]
        self._edges: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, parent: int, token: int) -> int:
        """The node for `token` below `parent`: a new one, or the one that is there already."""
        node = self._edges.get((parent, token))
        if node is None:
            node = len(self._tokens)
            self._tokens.append(token)
            self._parents.append(parent)
            self._edges[parent, token] = node
        return node

    def build(self) -> TokenTree:
        """The tree as it stands."""
        return TokenTree(tuple(self._tokens), tuple(self._parents))
