"""The drafter interface: one way to propose token trees for many sessions at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.core.tree import TokenTree

if TYPE_CHECKING:  # it brings torch, which model-free drafters do without
    from outrider.models.numerics import Numerics


@dataclass(frozen=True)
class FeatureSpec:
    """Hidden states of the target that a drafter asks for.

    taps: layers whose input is tapped; the number of layers stands for the state after the final
        norm.
    window: only this many last rows of the prompt; 0 is all.
    """

    taps: tuple[int, ...]
    window: int = 0


@dataclass
class DraftSession:
    """One request's state at a drafter.

    tokens: all committed tokens, prompt included; the last one is the root of the next proposal.
    state: what the drafter keeps besides; only the drafter that opened the session reads it.
    """

    tokens: list[int]
    sampling: SamplingParams
    state: Any = None


class Drafter(ABC):
    """Proposes token trees. One thread calls all methods of an instance, one call at a time.

    method: the name under which requests ask for it and statistics are booked.
    recommended_depth: the depth K where nothing is known about the session yet.
    recommended_nodes: the most drafted nodes where the request names none; 0: as many as the depth,
        a chain.
    features, wants_samples: what `observe` wants to get; gaps are allowed and only cost acceptance.
    whole_trees: a tree smaller than the widest so far is worth much less, so all of a budget is
        asked for, or nothing.
    scores: its proposals cost next to nothing, are never drawn, and carry a score.
    model_name, numerics: of its model; empty and None for model-free drafters.
    """

    method: str
    recommended_depth: int = 4
    recommended_nodes: int = 0
    features: FeatureSpec | None = None
    wants_samples: bool = False
    whole_trees: bool = False
    scores: bool = False
    model_name: str = ""
    numerics: Numerics | None = None

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A new session; cheap."""
        return DraftSession(list(prompt), sampling)

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Works off committed tokens that it has not seen yet, at most `rows` of them; may run a
        model.

        Returns:
            Whether nothing is left to work off, so that `propose` will be quick.
        """
        return True

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Records what was committed since the last call; cheap.

        Args:
            new_tokens: committed tokens, the new root last.
            features: rows of committed tokens, where the drafter asks for them.
            samples: the target's token at every node of the last tree, where the drafter asks for
                them.
        """
        session.tokens.extend(new_tokens)

    @abstractmethod
    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """One proposal for each session, in order, all drafted together.

        Node 0 of each tree is the session's last token. A tree without drafted nodes is a valid
        proposal.
        """

    def close(self, session: DraftSession) -> None:
        """Frees what the session holds."""
        session.state = None

    def _empty(self, session: DraftSession) -> Proposal:
        return Proposal(TokenTree.root_only(session.tokens[-1]), self.method)
