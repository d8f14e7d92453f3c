"""The two Protocols that the decode loop is written against, and what it hands the caller.

`orchestrator.remote` implements them over gRPC; tests implement them in one process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.core.acceptance import Kind
from outrider.core.round import Budget, Commit, Evidence, Features, Ids, Load, Proposal
from outrider.core.tree import TokenTree


class PeerLost(Exception):
    """A peer's stream broke; what was committed stays committed."""


class PeerFull(PeerLost):
    """A peer has no room for another session."""


class PeerRefused(PeerLost):
    """A peer finds what it was asked wrong; `details` says what."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class RunTokens:
    """Tokens that the target committed in a free run, its time, its load, and the feature rows of
    the tokens in front of them."""

    tokens: tuple[int, ...]
    queue_us: int = 0
    forward_us: int = 0
    load: Load = field(default_factory=Load)
    features: Features | None = None


@dataclass(frozen=True)
class Committed:
    """Tokens committed in one go and the kind of each; `finished` with the last ones."""

    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    finished: bool


class Verifier(Protocol):
    """One session on a target replica."""

    @property
    def round_bytes(self) -> int:
        """Serialised bytes of all VerifyRequests and Evidences so far, features apart."""

    async def prefill(self) -> Evidence:
        """Evidence of the prompt's last token; called once, first."""

    async def verify(
        self,
        base_len: int,
        commit: Commit | None,
        tree: TokenTree,
        supports: Mapping[int, Ids],
        tree_exact: bool,
    ) -> Evidence:
        """Evidence for `tree`, whose root is token number base_len; `commit` is absent behind a
        free run."""

    def free_run(
        self,
        base_len: int,
        commit: Commit | None,
        root: int,
        max_tokens: int,
        stop_ids: Sequence[int],
    ) -> AsyncGenerator[RunTokens, None]:
        """Lets the target commit by itself up to max_tokens; ends behind a stop id, max_tokens or
        `halt`."""

    async def want_features(self) -> None:
        """Feature rows are sent from now on, where they were left for later."""

    async def halt(self) -> None:
        """Ends a free run soon: its iterator still yields what was committed meanwhile."""

    def take_features(self) -> list[Features]:
        """Feature rows that came in front of the last evidence, each once."""


class Drafter(Protocol):
    """One session on a draft replica, once it was opened. It may be slow, absent or dead; it never
    raises for that.

    on_open: hears of each session that is ready, and of the time its prefill took, microseconds.
    """

    on_open: Callable[[int], None]

    @property
    def method(self) -> str:
        """The drafter that the session opened with."""

    def open(self) -> None:
        """Asks for the session; called once."""

    @property
    def ready(self) -> bool:
        """Whether a proposal may be asked for now."""

    @property
    def wants_samples(self) -> bool:
        """Whether `observe` should be given the target's samples."""

    @property
    def late(self) -> int:
        """Proposals that came too late and were dropped."""

    @property
    def round_bytes(self) -> int:
        """Serialised bytes of all DraftRequests and Proposals so far, features apart."""

    def observe(
        self, tokens: Sequence[int], features: Sequence[Features], samples: Sequence[int]
    ) -> None:
        """Tokens were committed, the new root last; they ride in the next request."""

    async def propose(self, budget: Budget) -> Proposal | None:
        """A tree behind the last observed token; None where it came too late or not at all."""


class Witness(Protocol):
    """Hears of everything a request's rounds came to, as it happens; it must be quick."""

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        """A proposal was waited for; None: it came too late or not at all."""

    def verified(self, rows: int, context: int, evidence: Evidence, waited_s: float) -> None:
        """A tree of `rows` nodes, root included, behind `context` cached rows was verified."""

    def decided(
        self, budget: Budget, method: str, tree: TokenTree, accepted: Sequence[int]
    ) -> None:
        """The walk kept these nodes of the tree that `method` drafted for `budget`."""

    def ran(self, run: RunTokens, waited_s: float) -> None:
        """A free run brought tokens."""


class Controller(Protocol):
    """Chooses what the next round may draft."""

    def calls(self, remaining: int) -> bool:
        """Whether the drafter is to open a session now; asked until it does."""

    def choose(self, remaining: int) -> Budget | None:
        """A budget, or None for K=0, with `remaining` tokens still allowed."""
