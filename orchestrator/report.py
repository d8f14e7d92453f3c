"""Counts of one request: rounds, drafted, accepted, times. Words as in ARCHITECTURE.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.requests import PLAIN
from outrider.core.acceptance import Kind
from outrider.core.round import Evidence, Proposal
from outrider.core.tree import TokenTree


@dataclass
class Report:
    """What a request's rounds came to; `passes` counts every target pass behind the prefill.

    accepted and emitted count tokens of the text alone: what the last round decided behind the
    text's end, be it a stop id or a stop string, is in neither, so accepted <= emitted.
    """

    method: str = PLAIN
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    passes: int = 0
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    draft_wait_us: int = 0
    draft_us: int = 0
    verify_wait_us: int = 0
    verify_us: int = 0
    queue_us: int = 0
    by_method: dict[str, Counter[str]] = field(default_factory=dict)
    _last: tuple[Counter[str], int] = field(default_factory=lambda: (Counter(), 0), repr=False)

    def add_round(self, method: str, tree: TokenTree, accepted: int, emitted: int) -> None:
        """Books a decided tree; one without drafted nodes is a pass but no round."""
        self.passes += 1
        if not tree.drafted:
            return
        self.rounds += 1
        self.drafted += tree.drafted
        self.accepted += accepted
        self.emitted += emitted
        _count(self.drafted_per_position, tree.depth)
        _count(self.accepted_per_position, accepted)
        counts = self.by_method.setdefault(method, Counter())
        counts["rounds"] += 1
        counts.update(f"drafted:{position}" for position in range(tree.depth))
        counts.update(f"accepted:{position}" for position in range(accepted))
        self._last = counts, accepted

    def drop(self, kinds: Sequence[Kind]) -> None:
        """Takes the last tokens committed, of these kinds, out again: the text ended before them.

        Those of a free run are in no count of tokens, and a round's first token is never dropped.
        """
        if Kind.PLAIN in kinds or not kinds:
            return
        self.emitted -= len(kinds)
        dropped = list(kinds).count(Kind.ACCEPTED)
        counts, depth = self._last
        self.accepted -= dropped
        for position in range(depth - dropped, depth):
            self.accepted_per_position[position] -= 1
            counts[f"accepted:{position}"] -= 1
        while self.accepted_per_position and not self.accepted_per_position[-1]:
            self.accepted_per_position.pop()

    def add_draft(self, proposal: Proposal | None, waited_s: float) -> None:
        """Books the time of a proposal, also of one that never came."""
        self.draft_wait_us += int(waited_s * 1e6)
        if proposal is not None:
            self.draft_us += proposal.draft_us
            self.queue_us += proposal.queue_us

    def add_verify(self, evidence: Evidence, waited_s: float) -> None:
        """Books the time of a verify call."""
        self.verify_wait_us += int(waited_s * 1e6)
        self.verify_us += evidence.forward_us
        self.queue_us += evidence.queue_us


def _count(per_position: list[int], depth: int) -> None:
    per_position.extend([0] * (depth - len(per_position)))
    for position in range(depth):
        per_position[position] += 1
