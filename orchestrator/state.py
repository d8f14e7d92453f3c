"""What the controller knows before a round, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.company import ALONE, Company, Times


class Reason(Enum):
    """Why a round has the K it has."""

    COLD = "cold"  # nothing was measured yet: the drafter's own recommendation
    GAIN = "gain"  # this K earns most
    NO_GAIN = "no_gain"  # K=0 earns most, even on an idle target
    LOADED = "loaded"  # K=0 earns most among so many rows; alone the session would draft
    HELD = "held"  # the other would earn more, but not enough to change for
    PROBE = "probe"  # a round to learn from, out of what was saved for it
    ENDING = "ending"  # too few tokens are left
    NOT_READY = "not_ready"  # the drafter has not prefilled, owes a reply, or is gone


@dataclass(frozen=True)
class Bounds:
    """What the request allows: depths and most drafted nodes, and what the drafter recommends.

    whole: K is 0 or `most`, with all nodes.
    """

    least: int
    most: int
    nodes: int
    recommended: int
    whole: bool = False


@dataclass(frozen=True)
class State:
    """What is known before a round.

    curve: s_1, s_2, ..., as deep as the bounds. sibling: the chance b that a further child catches
        what the others missed.
    verify: v(rows) in microseconds, rows at least 1. times: the rest of a round.
    company: whom it meets in a step.
    running: whether a free run is under way; change_us: what leaving it costs.
    allowance: tokens that may be spent on so many rounds (`probes`) only to learn from them.
    """

    curve: Sequence[float]
    verify: Callable[[float], float]
    times: Times = field(default_factory=Times)
    company: Company = ALONE
    sibling: float = 0.0
    running: bool = False
    change_us: float = 0.0
    allowance: float = 0.0
    probes: int = 1


@dataclass(frozen=True)
class Choice:
    """Depth and drafted nodes of the next round (0, 0: a free run), why, the best depth's G over
    that of K=0, and what nodes and levels of a tree have to promise, see `Budget`."""

    depth: int
    nodes: int
    reason: Reason
    gain: float = 1.0
    least_node: float = 0.0
    least_level: float = 0.0
