"""A suffix automaton over a growing text that knows how often, and where last, its pieces occurred.

A state stands for all pieces of the text that end at the same places (Blumer et al., 1985): the
longest has `length` tokens, the others are its suffixes down to one longer than the longest of the
state's link. Following links from the state of the text's end gives ever shorter endings that
occurred more often, which is what prompt lookup asks for.

Counts need one addition. The number of places of a state grows with every token for every ending
of the text, and a text of one repeated token has as many of them as tokens. So only endings of at
most `reach` tokens are counted: a token costs amortised constant time for the automaton and at most
`reach` steps for the counts, whatever the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROOT = 0
NOWHERE = -1


@dataclass(frozen=True)
class Ending:
    """An ending of the text that also occurred before.

    state: its state. length: tokens of the longest such ending in the state, at most the reach.
    count: earlier occurrences. end: tokens of the text up to the end of the most recent of them.
    """

    state: int
    length: int
    count: int
    end: int


class SuffixAutomaton:
    """The automaton, grown by `extend`; states are numbers, the empty piece is state 0.

    Args:
        reach: longest ending that is counted.

    Raises:
        ValueError: reach is below 1.
    """

    def __init__(self, reach: int = 32) -> None:
        if reach < 1:
            raise ValueError(f"reach: {reach}, limit at least 1")
        self.reach = reach
        self.tokens: list[int] = []
        self.steps = 0
        self._next: list[dict[int, int]] = [{}]
        self._link = [NOWHERE]
        self._length = [0]
        self._count = [0]
        self._end = [0]
        self._end_before = [0]
        self._last = ROOT
        # The state and length of the longest ending of at most `reach` tokens.
        self._cursor, self._cursor_length = ROOT, 0

    def __len__(self) -> int:
        """Tokens of the text."""
        return len(self.tokens)

    @property
    def states(self) -> int:
        """Number of states, at most twice the number of tokens."""
        return len(self._next)

    def extend(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the text.

        `steps` grows by the elementary steps taken: a measure of the cost that no clock disturbs.
        """
        for token in tokens:
            self._append(token)
            self._book(token)

    def endings(self) -> Iterator[Ending]:
        """Endings of the text that occurred before, a state each, the longest first."""
        state = self._cursor
        while state > ROOT:
            if self._count[state] > 1:
                length = min(self._length[state], self._cursor_length)
                yield Ending(state, length, self._count[state] - 1, self._end_before[state])
            state = self._link[state]

    def followers(self, state: int) -> dict[int, int]:
        """The state behind a state's pieces for each token that followed them; read only."""
        return self._next[state]

    def count(self, state: int) -> int:
        """Occurrences of a state's pieces, the text's end included; of those that end there, exact
        for pieces of at most `reach` tokens."""
        return self._count[state]

    def recent(self, state: int) -> int:
        """Tokens of the text up to the end of the last occurrence."""
        return self._end[state]

    def within_reach(self, state: int) -> int:
        """The state itself, or the next one up its links that has a piece short enough to be
        counted."""
        while self._length[self._link[state]] >= self.reach:
            state = self._link[state]
        return state

    def link(self, state: int) -> int:
        """The state of the longest suffix that occurred elsewhere too; NOWHERE above the root."""
        return self._link[state]

    def length(self, state: int) -> int:
        """Tokens of a state's longest piece."""
        return self._length[state]

    def find(self, piece: Sequence[int]) -> int | None:
        """The state of a piece of the text; None where it does not occur."""
        state: int | None = ROOT
        for token in piece:
            if state is None:
                return None
            state = self._next[state].get(token)
        return state

    def _append(self, token: int) -> None:
        """The classical extension by one token."""
        self.tokens.append(token)
        new = self._state({}, self._length[self._last] + 1)
        place = self._last
        while place != NOWHERE and token not in self._next[place]:
            self._next[place][token] = new
            place = self._link[place]
            self.steps += 1
        if place == NOWHERE:
            self._link[new] = ROOT
        else:
            known = self._next[place][token]
            if self._length[known] == self._length[place] + 1:
                self._link[new] = known
            else:
                self._link[new] = self._split(place, token, known)
        self._last = new

    def _split(self, place: int, token: int, known: int) -> int:
        """Gives the shorter pieces of `known`, which end at more places from now on, a state of
        their own."""
        short = self._state(dict(self._next[known]), self._length[place] + 1)
        self._link[short] = self._link[known]
        self._link[known] = short
        self._count[short] = self._count[known]
        self._end[short], self._end_before[short] = self._end[known], self._end_before[known]
        if self._cursor == known and self._cursor_length <= self._length[short]:
            self._cursor = short
        while place != NOWHERE and self._next[place].get(token) == known:
            self._next[place][token] = short
            place = self._link[place]
            self.steps += 1
        return short

    def _book(self, token: int) -> None:
        """Counts the endings that the last token completed."""
        cursor = self._next[self._cursor][token]
        length = self._cursor_length + 1
        if length > self.reach:
            length = self.reach
            if length <= self._length[self._link[cursor]]:
                cursor = self._link[cursor]
        self._cursor, self._cursor_length = cursor, length
        end = len(self.tokens)
        while cursor > ROOT:
            self._count[cursor] += 1
            self._end_before[cursor], self._end[cursor] = self._end[cursor], end
            cursor = self._link[cursor]
            self.steps += 1

    def _state(self, following: dict[int, int], length: int) -> int:
        self._next.append(following)
        self._link.append(ROOT)
        self._length.append(length)
        self._count.append(0)
        self._end.append(0)
        self._end_before.append(0)
        self.steps += 1
        return len(self._next) - 1
