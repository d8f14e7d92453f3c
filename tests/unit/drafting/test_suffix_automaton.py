from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafting.suffix_automaton import SuffixAutomaton

texts = st.lists(st.integers(0, 2), max_size=40)


def grown(*parts: list[int], reach: int = 32) -> SuffixAutomaton:
    automaton = SuffixAutomaton(reach)
    for part in parts:
        automaton.extend(part)
    return automaton


def ends_of(piece: list[int], text: list[int]) -> list[int]:
    """Every place behind an occurrence of the piece."""
    size = len(piece)
    return [end for end in range(size, len(text) + 1) if text[end - size : end] == piece]


def brute_force_endings(text: list[int], reach: int) -> list[tuple[int, int, int]]:
    """(length, earlier occurrences, end of the last one) of the longest ending of each count."""
    found: dict[int, tuple[int, int, int]] = {}
    for length in range(1, min(reach, len(text)) + 1):
        earlier = ends_of(text[-length:], text)[:-1]
        if earlier:
            found[len(earlier)] = (length, len(earlier), earlier[-1])
    return sorted(found.values(), reverse=True)


@given(texts, texts)
def test_every_piece_is_found_and_nothing_else(text: list[int], other: list[int]) -> None:
    automaton = grown(text)
    for start in range(len(text)):
        for end in range(start, len(text) + 1):
            assert automaton.find(text[start:end]) is not None
    piece = other[:5]
    assert (automaton.find(piece) is not None) == bool(ends_of(piece, text) or not piece)


@given(texts, texts, st.integers(1, 6))
def test_counts_and_last_places_equal_a_search_for_every_short_piece(
    first: list[int], second: list[int], reach: int
) -> None:
    automaton = grown(first, second, reach=reach)
    text = first + second
    for end in range(1, len(text) + 1):
        for length in range(1, min(reach, end) + 1):
            piece = text[end - length : end]
            state = automaton.find(piece)
            assert state is not None
            assert automaton.within_reach(state) == state
            ends = ends_of(piece, text)
            assert automaton.count(state) == len(ends)
            assert automaton.recent(state) == ends[-1]


@given(texts, texts, st.integers(1, 40))
def test_endings_equal_a_search_after_every_extension(
    first: list[int], second: list[int], reach: int
) -> None:
    automaton = SuffixAutomaton(reach)
    text: list[int] = []
    for token in first + second:
        automaton.extend([token])
        text.append(token)
        found = [(ending.length, ending.count, ending.end) for ending in automaton.endings()]
        assert found == brute_force_endings(text, reach)


@given(texts)
def test_followers_are_what_followed(text: list[int]) -> None:
    automaton = grown(text)
    for ending in automaton.endings():
        piece = text[-ending.length :]
        followed = Counter(text[end] for end in ends_of(piece, text) if end < len(text))
        found = {
            token: automaton.count(state)
            for token, state in automaton.followers(ending.state).items()
        }
        assert found == followed


def test_growing_in_parts_is_the_same_as_at_once() -> None:
    whole, parts = grown([0, 1, 0, 1, 1, 0, 1]), grown([0, 1], [], [0, 1, 1], [0, 1])
    assert list(whole.endings()) == list(parts.endings())
    assert (len(whole), whole.states) == (len(parts), parts.states)


@pytest.mark.parametrize(
    "text",
    [
        [7] * 10_000,
        [1, 2] * 5_000,
        [i % 100 for i in range(10_000)],
        [i * i % 7919 for i in range(10_000)],
    ],
    ids=["one token", "two in turn", "period 100", "scattered"],
)
def test_steps_and_states_grow_with_the_text_and_not_with_its_repetition(text: list[int]) -> None:
    automaton = grown(text)
    assert automaton.states <= 2 * len(text)
    assert automaton.steps <= (automaton.reach + 8) * len(text)


def test_without_a_reach_one_repeated_token_would_cost_its_square() -> None:
    """The bound above has power: it is the reach that keeps it."""
    automaton = grown([7] * 2_000, reach=2_000)
    assert automaton.steps > 100 * 2_000


def test_reach_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="reach: 0, limit at least 1"):
        SuffixAutomaton(0)
