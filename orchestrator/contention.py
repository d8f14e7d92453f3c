"""When drafts were made, so that what they take from the target's steps is told from the steps' own
time. Where draft and target share cores, a step that is under way while a draft is made, or sent,
takes longer; where they do not, the two have nothing to do with each other. Times are in
microseconds, on one clock."""

from __future__ import annotations

from collections import deque

from orchestrator.costs import Mean

KEPT = 64
OVERDUE_US = 1e6  # a draft that is not there after this long is no longer waited for


class Drafting:
    """The last times in which drafts were made, each moment once.

    own: mean share of a proposal's time that no earlier one had covered; 1 where each is made
    alone, less where one batch makes several.
    """

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._own = Mean()
        self._asked: dict[int, float] = {}

    def ask(self, who: int, now: float) -> None:
        """A session asks its drafter for something: a draft, or to open."""
        self._asked.pop(who, None)  # they stand in the order of their times
        self._asked[who] = now

    def answered(self, who: int) -> None:
        """The session's drafter has answered."""
        self._asked.pop(who, None)

    def known(self, until: float, now: float) -> bool:
        """Whether all drafting up to a time has been told; who is overdue is forgotten, since a
        session may end without an answer."""
        while self._asked:
            who, asked = next(iter(self._asked.items()))
            if asked >= now - OVERDUE_US:
                return asked > until
            del self._asked[who]
        return True

    @property
    def own(self) -> float:
        """The mean share; 1 before the first draft."""
        return self._own.value if self._own.count else 1.0

    def add(self, began: float, ended: float) -> None:
        """A draft was made between two times; drafts are told in the order of their ends."""
        joins = bool(self._spans) and self._spans[-1][1] >= began
        start, fresh = self._spans[-1] if joins else (began, began)
        if ended > began:
            self._own.add(max(0.0, ended - fresh) / (ended - began))
        if ended > fresh:
            if joins:  # one goes on where the other ended
                self._spans.pop()
            self._spans.append((start, ended))

    def within(self, began: float, ended: float) -> float:
        """For how long drafts were made between two times."""
        found = 0.0
        for start, end in reversed(self._spans):
            if end <= began:
                break
            found += max(0.0, min(end, ended) - max(start, began))
        return found
