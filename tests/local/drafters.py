"""The loop's Drafter over a drafter in this process, with the faults that a remote one has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from draft_service.drafters.draft_model import DraftModelDrafter
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting import base
from tests.local.memo_lm import MemoLM, as_model
from tests.local.together import Together


@dataclass(frozen=True)
class Faults:
    """What goes wrong, counted in proposals asked for (0 is the first).

    late: proposals that come too late; the loop finds the drafter busy for `pause` looks.
    dies_at: the proposal during which the drafter is lost.
    reopens_after: looks at a lost drafter until a new session opens with the whole prefix.
    """

    late: frozenset[int] = frozenset()
    pause: int = 2
    dies_at: int | None = None
    reopens_after: int | None = None


NO_FAULTS = Faults()


class LocalDraft:
    """A drafter and the proposals that its sessions ask for in one turn of the event loop."""

    def __init__(self, drafter: base.Drafter) -> None:
        self.drafter = drafter
        self.run = Together[tuple[base.DraftSession, Budget], Proposal](drafter.propose)

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, faults: Faults = NO_FAULTS
    ) -> LocalDrafter:
        return LocalDrafter(self, prompt, sampling, faults)


def draft_model(model: MemoLM, seed: int = 0) -> LocalDraft:
    """The real draft_model drafter over `model`, its draws fixed by `seed`."""
    drafter = DraftModelDrafter(as_model(model))
    drafter._rng = np.random.default_rng([seed, 2])
    return LocalDraft(drafter)


class LocalDrafter:
    """One session; like a remote one it gets tokens with the next request and never raises."""

    round_bytes = 0

    def __init__(
        self, draft: LocalDraft, prompt: Sequence[int], sampling: SamplingParams, faults: Faults
    ) -> None:
        self.method = draft.drafter.method
        self.wants_samples = draft.drafter.wants_samples
        self.late = 0
        self.asked = 0
        self.reopened = 0
        self._draft = draft
        self._sampling = sampling
        self._faults = faults
        self._tokens = list(prompt)
        self._sent = len(prompt)
        self._features: list[Features] = []
        self._samples: Sequence[int] = ()
        self._busy = 0
        self._dead = False
        self._session = self._open()

    on_open: Callable[[int], None]

    def open(self) -> None:
        """It was there from the start."""

    @property
    def ready(self) -> bool:
        """Each look brings a late or lost drafter one step nearer to its return."""
        if self._busy:
            self._busy -= 1
            if self._busy == 0 and self._dead and self._faults.reopens_after is not None:
                self._session, self._dead = self._open(), False
                self.reopened += 1
            return False
        return not self._dead

    def observe(
        self, tokens: Sequence[int], features: Sequence[Features], samples: Sequence[int]
    ) -> None:
        self._tokens += tokens
        self._features += features
        self._samples = samples or self._samples

    async def propose(self, budget: Budget) -> Proposal | None:
        number = self.asked
        self.asked += 1
        if number == self._faults.dies_at:
            self._dead = True
            self._busy = self._faults.reopens_after or 0
            return None
        new = self._tokens[self._sent :]
        self._draft.drafter.observe(self._session, new, self._features, self._samples)
        self._sent, self._features, self._samples = len(self._tokens), [], ()
        proposal = await self._draft.run((self._session, budget))
        if number in self._faults.late:
            self.late += 1
            self._busy = self._faults.pause
            return None
        return proposal

    def _open(self) -> base.DraftSession:
        self._samples = ()
        session = self._draft.drafter.open(self._tokens, self._sampling)
        self._sent = len(self._tokens)
        self._draft.drafter.prefill(session)
        return session
