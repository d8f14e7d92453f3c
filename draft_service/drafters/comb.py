"""The shape of a drafted tree, fixed before any token is drawn."""

from __future__ import annotations


def comb(depth: int, nodes: int) -> list[int]:
    """Children per level of a comb: a spine with leaf siblings beside it.

    One child a level carries on; nodes beyond the spine become siblings, one a level from the top
    down and round again, because a level near the root is reached most often.

    Args:
        depth: greatest depth.
        nodes: most nodes, root excluded.

    Returns:
        Entry i is the number of children of the spine's node at depth i; a chain where nodes <=
        depth.
    """
    depth = min(depth, nodes)
    if depth <= 0:
        return []
    each, rest = divmod(nodes - depth, depth)
    return [1 + each + (level < rest) for level in range(depth)]
