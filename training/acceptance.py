"""What is measured of a drafter on held-out texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Acceptance:
    """What held-out texts say.

    Args:
        first: share of columns whose likeliest draft is the next token.
        conditional: entry j: the same at depth j, where all before were right.
        chain: acceptance length (bonus included) by chain length.
        tree: the same by nodes, for the best tree of fixed ranks, found on other texts.
        overlap: mean over columns of sum min(p, q) at temperature 1, by depth.
        sampled_chain: acceptance length of a sampled chain of 4 that these overlaps suggest.
        accuracies: entry [j][r]: how often rank r was right at depth j.
        columns, sequences: how much was measured.
    """

    first: float
    conditional: tuple[float, ...]
    chain: dict[int, float]
    tree: dict[int, float]
    overlap: tuple[float, ...]
    sampled_chain: float
    accuracies: tuple[tuple[float, ...], ...]
    columns: int
    sequences: int

    @property
    def score(self) -> float:
        """What checkpoints are chosen by: the chain of 4, or the longest that there is."""
        return self.chain[min(4, max(self.chain))]

    def to_json(self) -> dict[str, Any]:
        """As a report tells it."""
        return {**vars(self)}
