"""One generation request's state on a target replica, and what keeps it and the orchestrator in
step.

All fields belong to the event loop; while a pass or a free run is in progress only the engine
changes them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from outrider.core.round import Commit, Features, Ids, SamplingParams
from outrider.core.sampling import Law
from outrider.core.tree import TokenTree
from outrider.models.cache import KVCache
from outrider.serving.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True)
class FeatureRequest:
    """Which hidden states a drafter asks for: layer taps, and how many last rows of the prompt (0
    is all)."""

    taps: tuple[int, ...]
    window: int


@dataclass
class FreeRun:
    """A free run in progress.

    end: committed tokens at which it ends; acknowledged: those that the orchestrator has.
    """

    end: int
    stop_ids: frozenset[int]
    acknowledged: int
    halted: bool = False


@dataclass
class Session:
    """State of one request; `tokens` holds the committed tokens, prompt and root included.

    serial: place in the order in which sessions were opened; steps: those that it took part in;
    active: when it last asked for something or took part in a step, by time.monotonic;
    later: features that nobody has asked for yet.
    bits_exact: false once a tree was computed whose rows may differ in their last bits.
    """

    request_id: str
    tokens: list[int]
    sampling: SamplingParams
    cache: KVCache
    limit: int
    features: FeatureRequest | None = None
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    round: int = 0
    tree: TokenTree | None = None
    free_run: FreeRun | None = None
    busy: bool = False
    serial: int = 0
    steps: int = 0
    active: float = field(default_factory=time.monotonic)
    bits_exact: bool = True
    prompt_features: list[Features] = field(default_factory=list)
    kept_features: list[Features] = field(default_factory=list)
    kept_rows: tuple[int, list[int]] | None = None
    later: FeatureRequest | None = None

    @property
    def base_len(self) -> int:
        """Committed tokens, root included."""
        return len(self.tokens)

    def advance(self, round_: int, base_len: int, commit: Commit | None, root: int) -> None:
        """Applies the decision of the last round, if both sides agree on where the session stands.

        Raises:
            FailedPrecondition: a pass or free run is in progress, or a field does not fit the
                session.
        """
        if self.busy or self.free_run is not None:
            raise FailedPrecondition("verify: a pass or a free run of this session is in progress")
        if round_ != self.round + 1:
            raise FailedPrecondition(f"round: {round_}, limit {self.round + 1}")
        kept = self._path(commit)
        tokens = [*(self.tree.tokens[node] for node in kept)] if self.tree else []
        if commit is not None:
            tokens.append(commit.emitted)
        if base_len != self.base_len + len(tokens):
            raise FailedPrecondition(f"base_len: {base_len}, limit {self.base_len + len(tokens)}")
        if root != (tokens or self.tokens)[-1]:
            raise FailedPrecondition(f"root: token {root}, limit {(tokens or self.tokens)[-1]}")
        if base_len > self.limit:
            raise FailedPrecondition(
                f"base_len: {base_len}, limit {self.limit} by prompt and max_tokens"
            )
        first = self.base_len - 1  # the root's row; node i has row first + i
        if self.tree is not None and self.cache.length > first:  # not where memory was taken away
            self.kept_rows = first + 1, [first + node for node in kept]
        self.tokens += tokens
        self.round = round_
        self.tree = None

    @property
    def rows_after_compaction(self) -> int:
        """Cached rows once those of refused nodes are gone."""
        if self.kept_rows is None:
            return self.cache.length
        return self.kept_rows[0] + len(self.kept_rows[1])

    @property
    def settled_rows(self) -> int:
        """Cached rows of committed tokens that stand where they will stay."""
        return min(self.cache.length, self.kept_rows[0] if self.kept_rows else self.base_len)

    @property
    def featured_rows(self) -> int:
        """Rows of the prompt whose features have been sent."""
        return max((part.start + part.rows for part in self.prompt_features), default=0)

    def want_features(self) -> None:
        """Features that were left for later are made from the next step on."""
        if self.later is not None:
            self.features, self.later = self.later, None

    def forget_rows(self) -> None:
        """Gives all memory of the cache back; its rows are computed again when they are needed."""
        self.cache.free()
        self.kept_rows = None

    def compact(self) -> None:
        """Drops the cache rows of refused nodes. It moves tensors: work for the thread that owns
        them."""
        if self.kept_rows is not None:
            self.cache.keep(*self.kept_rows)
            self.kept_rows = None

    def _path(self, commit: Commit | None) -> tuple[int, ...]:
        if (commit is None) != (self.tree is None):
            verb = "is missing behind" if commit is None else "has nothing to decide without"
            raise FailedPrecondition(f"commit: {verb} a verified tree")
        if commit is None or self.tree is None:
            return ()
        parent = 0
        for node in commit.accepted:
            if not 0 < node < len(self.tree) or self.tree.parents[node] != parent:
                raise FailedPrecondition(
                    f"commit.accepted: {list(commit.accepted)} is no path of the last tree"
                )
            parent = node
        return commit.accepted

    def check_room(self, tree: TokenTree, context_length: int) -> None:
        """Raises InvalidArgument where the tree's deepest node would lie outside the model's
        context."""
        if self.base_len + tree.depth > context_length:
            raise InvalidArgument(
                f"tree: depth {tree.depth} at {self.base_len} tokens, "
                f"limit {context_length} tokens of context"
            )

    def sample(self, law: Law, position: int) -> int:
        """A token for the place behind `position` tokens: by the seed's noise, or by the OS's."""
        if self.sampling.seed is not None:
            return law.seeded_draw(self.sampling.seed, self.sampling.choice, position)
        return law.draw(self.rng.random())

    def sample_outside(self, law: Law, ids: Ids) -> tuple[int, float]:
        """A token outside `ids` [m], or -1 where the law has no mass there, and the mass there."""
        outside, mass = law.outside(ids)
        return (outside.draw(self.rng.random()) if mass > 0.0 else -1), mass
