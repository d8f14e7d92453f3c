"""Texts of the past, bounded, in which the continuation of the present one may be found.

One index serves all sessions of a replica. It holds whole sequences and forgets the oldest ones
first; every place at which `KEY` tokens stood is in the index exactly as long as its sequence.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.drafting.continuations import Context, Follower

KEY = 3
"""Tokens that must agree before a past text is looked at: shorter matches with other people's
texts are mostly chance."""

MOST_MATCHES = 16
REACH = 32

Key = tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """A place in a past text: behind its `end`-th token, the last `length` of which agree."""

    text: array[int]
    end: int
    length: int
    age: int


class PastTexts:
    """Sequences of at most `limit` tokens together.

    Raises:
        ValueError: limit is below 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit: {limit}, limit at least 1")
        self.limit = limit
        self.tokens = 0
        self._texts: deque[array[int]] = deque()
        self._places: dict[Key, list[tuple[array[int], int]]] = {}

    @property
    def places(self) -> int:
        """Places in the index; at most one a token."""
        return sum(map(len, self._places.values()))

    def add(self, tokens: Sequence[int]) -> None:
        """Remembers a sequence, its last `limit` tokens where it is longer, and forgets the oldest
        ones to make room."""
        text = array("I", tokens[-self.limit :])
        if len(text) <= KEY:  # nothing could be looked up in it
            return
        while self.tokens + len(text) > self.limit:
            self._forget()
        for end in range(KEY, len(text)):
            self._places.setdefault(tuple(text[end - KEY : end]), []).append((text, end))
        self._texts.append(text)
        self.tokens += len(text)

    def matches(self, tokens: Sequence[int]) -> list[Match]:
        """The most recent places at which the end of `tokens` stood, the most recent last."""
        if len(tokens) < KEY:
            return []
        places = self._places.get(tuple(tokens[-KEY:]), [])[-MOST_MATCHES:]
        return [
            Match(text, end, _agreeing(text, end, tokens), age)
            for age, (text, end) in enumerate(places)
        ]

    def _forget(self) -> None:
        text = self._texts.popleft()
        self.tokens -= len(text)
        for end in range(KEY, len(text)):
            key = tuple(text[end - KEY : end])
            places = self._places[key]
            places.pop(0)  # places of older texts stand in front, and this is the oldest
            if not places:
                del self._places[key]


class PastSource:
    """Continuations of a text's end in past texts; a place is the matches that agree with a path.

    Args:
        tokens: the text.
    """

    def __init__(self, past: PastTexts, tokens: Sequence[int]) -> None:
        self._past = past
        self._tokens = tokens

    def start(self) -> tuple[Match, ...] | None:
        """The matches of the text's end."""
        return tuple(self._past.matches(self._tokens)) or None

    def contexts(self, place: tuple[Match, ...]) -> Iterator[Context[tuple[Match, ...]]]:
        """One context for each length of match: of all matches at least as long."""
        going_on = [match for match in place if match.end < len(match.text)]
        behind: dict[int, list[Match]] = {}
        for match in going_on:
            behind.setdefault(match.text[match.end], []).append(
                Match(match.text, match.end + 1, match.length + 1, match.age)
            )
        for length in sorted({match.length for match in going_on}, reverse=True):
            followers = []
            for token, matches in behind.items():
                ages = [match.age for match in matches if match.length > length]
                if ages:
                    followers.append(Follower(token, len(ages), max(ages), tuple(matches)))
            yield Context(length, followers)


def _agreeing(text: array[int], end: int, tokens: Sequence[int]) -> int:
    """Tokens in front of `end` that equal the end of `tokens`, at most REACH."""
    most = min(REACH, end, len(tokens))
    return next((n for n in range(KEY, most) if text[end - 1 - n] != tokens[-1 - n]), most)
