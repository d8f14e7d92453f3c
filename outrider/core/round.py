"""What draft, target and orchestrator hand each other in a round, free of any wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from outrider.core.tree import TokenTree

Ids = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SamplingParams:
    """How p is warped before a token is taken from it; order and meaning are those of transformers.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off. With a seed the text is a
    function of (seed, prompt, target). `choice` tells several choices of one request apart in the
    noise's counter.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    choice: int = 0

    @property
    def greedy(self) -> bool:
        """Whether p is one token."""
        return self.temperature == 0.0

    @property
    def draws(self) -> bool:
        """Whether drafts may be drawn from q (Rejection); greedy and seeded requests use Match."""
        return not self.greedy and self.seed is None


@dataclass(frozen=True)
class Budget:
    """What a proposal may cost: depth, nodes without the root, ids in a q~, time, confidence.

    least_node: a node whose path is less likely than that is not worth its row at the target.
    least_level: a further level is not worth its step where all paths that it would continue are
        together less likely than that. Both hold for trees of which nothing is drawn.
    """

    depth: int
    nodes: int
    m: int = 32
    time_left_s: float = 1.0
    p_min: float = 0.0
    least_node: float = 0.0
    least_level: float = 0.0


@dataclass(frozen=True)
class TruncatedDistribution:
    """q~: a draft distribution cut to its m likeliest tokens, as the children were drawn from it.

    Shapes: ids [m] ascending, weights [m] float32 as they cross the wire.
    """

    ids: Ids
    weights: npt.NDArray[np.float32]

    @cached_property
    def probabilities(self) -> Probabilities:
        """The weights over their sum in float64 [m]; both sides of the wire compute it alike."""
        weights = self.weights.astype(np.float64)
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class Features:
    """Hidden states of the target for `rows` tokens from position `start`, bfloat16, row-major."""

    start: int
    rows: int
    width: int
    data: bytes

    def rows_from(self, first: int, rows: int) -> Features:
        """The part of `rows` rows from position `first` on, which must lie inside."""
        size = 2 * self.width
        offset = (first - self.start) * size
        return Features(first, rows, self.width, self.data[offset : offset + rows * size])


@dataclass(frozen=True)
class Proposal:
    """The tree that a drafter sends, and q~ of each node whose children were drawn.

    draft_us: time spent drafting; queue_us: from the request's arrival to its start; prefill_us:
        time spent, besides, on what was committed since the last proposal.
    chances: of each node how likely it is to be accepted, 1 for the root and no child above its
        parent, where nothing was drawn and the drafter can tell; they stay in the draft service.
    """

    tree: TokenTree
    method: str
    drawn_from: Mapping[int, TruncatedDistribution] = field(default_factory=dict)
    draft_us: int = 0
    queue_us: int = 0
    prefill_us: int = 0
    chances: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """Drafted tokens that the drafter expects to be accepted; 0 where it cannot tell."""
        return sum(self.chances[1:])


@dataclass(frozen=True)
class Commit:
    """The decision of a round: accepted nodes from the root down, the token emitted behind them."""

    accepted: tuple[int, ...]
    emitted: int


@dataclass(frozen=True)
class NodeEvidence:
    """p at a node under Rejection: of each id of the support [m], and of everything outside it."""

    probabilities: Probabilities
    outside: float


@dataclass(frozen=True)
class Load:
    """Load of a replica: sessions open, rows of the last forward, passes and free runs in progress,
    sessions in the last forward, and those that it had no room for."""

    sessions: int = 0
    rows: int = 0
    queue: int = 0
    batch: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Evidence:
    """What the target returns for a tree.

    samples[i] is drawn from p at node i; under Rejection from p outside the node's support, -1
    where p has no mass there. `nodes` has p on the support of every Rejection node.
    """

    samples: tuple[int, ...]
    nodes: Mapping[int, NodeEvidence] = field(default_factory=dict)
    queue_us: int = 0
    forward_us: int = 0
    load: Load = field(default_factory=Load)
    features: Features | None = None
    walked: tuple[int, ...] = ()
