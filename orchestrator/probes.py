"""When a session drafts beside its free run only to learn: seldom, and within what all may spend.

Shadow drafts of one session come further and further apart. Where drafts take from the target's
steps, those of all sessions together take `SHARE` of its time at most, and less where rounds
promise little.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.knowledge import DraftCosts, TargetCosts

AFTER = 16  # tokens of a free run before its first shadow draft; then half as many more
SELDOM = 96  # but no more than so many, and than these where rounds all but pay
OFTEN = 32
CLOSE = 0.95
SHARE = 0.01  # most of the target's time that the shadow drafts of all sessions may take
LITTLE = 0.2  # of it, where rounds do not nearly pay
PAUSE = 8  # tokens of a run between two looks at rounds that do not nearly pay
STALE_S = 0.3  # a changed load calls for a new measure of the drafter after this long


class Probes:
    """The shadow drafts of one session, by the tokens of its free runs.

    Args:
        clock: seconds.
    """

    def __init__(
        self, target: TargetCosts, drafter: DraftCosts, clock: Callable[[], float]
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._clock = clock
        self._next = self._gap = AFTER
        self._reserved = False
        self._calm, self._sessions = 0, 0

    def again(self) -> None:
        """Begins anew: a round was made, or the text has changed."""
        self._next = self._gap = AFTER

    def ran(self, tokens: int) -> None:
        """A free run brought tokens."""
        self._next -= tokens
        self._calm -= tokens

    @property
    def calm(self) -> bool:
        """Whether the last look at rounds is to do for this token, too."""
        return self._calm > 0 and self._target.load.sessions == self._sessions

    def rest(self, gain: float) -> None:
        """Rounds were looked at and do not pay."""
        self._calm = PAUSE if gain < CLOSE else 0
        self._sessions = self._target.load.sessions

    @property
    def due(self) -> bool:
        """Whether the text calls for one, and it may be spent."""
        rested = self._reserved or self._clock() >= self._drafter.rests_until
        return self._next <= 0 and rested

    @property
    def stale(self) -> bool:
        """Whether the drafter was last measured long ago, under twice the load."""
        drafter = self._drafter
        fewer = 2 * self._target.load.sessions < drafter.measured_sessions
        return fewer and self._clock() > drafter.measured_at + STALE_S

    def call(self, depth: int, gain: float) -> None:
        """The session asks for its drafter, and drafts `depth` levels when it is there."""
        self._reserved = True
        self._spend(depth, gain, self._drafter.opening.value)

    def take(self, depth: int, gain: float) -> None:
        """One is made now; gain: of rounds, as the last choice saw it."""
        most = OFTEN if gain > CLOSE else SELDOM
        self._gap = min(most, self._gap + self._gap // 2)
        self._next = self._gap
        if not self._reserved:
            self._spend(depth, gain)
        self._reserved = False

    def _spend(self, depth: int, gain: float, opening_us: float = 0.0) -> None:
        times = self._drafter.times(self._target, 1.0)
        taken_us = times.drag_us(depth) + times.drag * opening_us
        share = SHARE if gain > CLOSE else SHARE * LITTLE
        self._drafter.rests_until = self._clock() + taken_us / 1e6 / share
