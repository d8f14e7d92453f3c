"""Drafters that tests play, on a clock that tests set."""

from __future__ import annotations

from collections.abc import Sequence

from draft_service.drafters.auto import AutoDrafter
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter, DraftSession, FeatureSpec

GREEDY = SamplingParams(temperature=0.0)
K4 = Budget(4, 4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Played(Drafter):
    """Proposes `drafted`, for `cost` seconds a level, and remembers what it was told."""

    def __init__(
        self,
        method: str,
        drafted: Sequence[int] = (50, 51, 52, 53),
        clock: Clock | None = None,
        cost: float = 0.0,
        features: FeatureSpec | None = None,
        wants_samples: bool = False,
    ) -> None:
        self.method = method
        self.drafted, self.clock, self.cost = drafted, clock or Clock(), cost
        self.features, self.wants_samples = features, wants_samples
        self.batches: list[int] = []
        self.budgets: list[Budget] = []
        self.told: list[tuple[list[int], list[Features], list[int]]] = []
        self.prefilled: list[int | None] = []
        self.open_sessions = 0

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        self.open_sessions += 1
        return super().open(prompt, sampling)

    def close(self, session: DraftSession) -> None:
        self.open_sessions -= 1

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        self.prefilled.append(rows)
        return len(self.prefilled) > 1

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        session.tokens.extend(new_tokens)
        self.told.append((list(new_tokens), list(features), list(samples)))

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        self.batches.append(len(batch))
        self.budgets += [budget for _, budget in batch]
        self.clock.now += self.cost * max(budget.depth for _, budget in batch)
        return [self.one(session, budget) for session, budget in batch]

    def one(self, session: DraftSession, budget: Budget) -> Proposal:
        return Proposal(
            TokenTree.chain(session.tokens[-1], self.drafted[: budget.depth]), self.method
        )


def ask(auto: AutoDrafter, session: DraftSession, budget: Budget = K4) -> Proposal:
    return auto.propose([(session, budget)])[0]


def rounds(
    auto: AutoDrafter, session: DraftSession, right: Sequence[str], count: int, clock: Clock
) -> list[str]:
    """Rounds in which drafts of the methods in `right` are kept whole and others not at all;
    a pass takes 20 ms. The methods chosen."""
    chosen = []
    for _ in range(count):
        proposal = ask(auto, session)
        chosen.append(proposal.method)
        clock.now += 0.02
        kept = proposal.tree.tokens[1:] if proposal.method in right else ()
        auto.observe(session, [*kept, 9])
    return chosen
