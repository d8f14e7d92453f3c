"""About what a further level of a tree brings and costs, for those who say what it must promise."""

GOES_ON = 0.6
"""How often a level catches what follows a path that was kept. Chances are those of paths that lead
to it, but it is paid for by what it adds to them."""

LEVEL_NODES = 2.0
"""Nodes that it adds to a tree."""
