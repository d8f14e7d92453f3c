import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.round import Budget
from outrider.core.tree import TokenTree
from outrider.drafting.continuations import draft
from outrider.drafting.past_texts import KEY, MOST_MATCHES, PastSource, PastTexts

texts = st.lists(st.lists(st.integers(0, 2), max_size=25), max_size=12)


def brute_force(kept: list[list[int]], tokens: list[int]) -> list[tuple[list[int], int]]:
    """Every place behind the last KEY tokens that has something behind it."""
    if len(tokens) < KEY:
        return []
    return [
        (text, end)
        for text in kept
        for end in range(KEY, len(text))
        if text[end - KEY : end] == tokens[-KEY:]
    ][-MOST_MATCHES:]


def kept_of(added: list[list[int]], limit: int) -> list[list[int]]:
    """What a FIFO of whole sequences holds."""
    kept: list[list[int]] = []
    for text in added:
        text = text[-limit:]
        if len(text) > KEY:
            while sum(map(len, kept)) + len(text) > limit:
                kept.pop(0)
            kept.append(text)
    return kept


@given(texts, st.integers(1, 60), st.lists(st.integers(0, 2), max_size=8))
def test_matches_equal_a_search_of_the_sequences_that_a_fifo_keeps(
    added: list[list[int]], limit: int, tokens: list[int]
) -> None:
    past = PastTexts(limit)
    for text in added:
        past.add(text)
    kept = kept_of(added, limit)
    found = [(list(match.text), match.end) for match in past.matches(tokens)]
    assert found == brute_force(kept, tokens)
    for match in past.matches(tokens):
        agreeing = tokens[-match.length :]
        assert list(match.text[match.end - match.length : match.end]) == agreeing
        longer = match.length + 1
        if longer <= min(match.end, len(tokens)):
            assert list(match.text[match.end - longer : match.end]) != tokens[-longer:]


@given(texts, st.integers(1, 60))
def test_memory_stays_within_the_limit_and_holds_nothing_of_forgotten_sequences(
    added: list[list[int]], limit: int
) -> None:
    past = PastTexts(limit)
    for text in added:
        past.add(text)
        assert past.tokens <= limit
    kept = kept_of(added, limit)
    assert past.tokens == sum(map(len, kept))
    assert past.places == sum(len(text) - KEY for text in kept)
    pieces = {tuple(text[end - KEY : end]) for text in kept for end in range(KEY, len(text))}
    assert set(past._places) == pieces


def test_a_sequence_longer_than_the_limit_keeps_its_end() -> None:
    past = PastTexts(6)
    past.add(list(range(20)))
    assert past.tokens == 6
    assert past.matches([14, 15, 16])
    assert not past.matches([10, 11, 12])


def test_the_longest_match_decides_among_past_texts() -> None:
    past = PastTexts(100)
    past.add([9, 8, 7, 1, 2, 3, 50, 51])
    past.add([4, 1, 2, 3, 60, 61])
    found = draft(PastSource(past, [9, 8, 7, 1, 2, 3]), 3, Budget(2, 2))
    assert found.tree == TokenTree.chain(3, [50, 51])
    assert 1.0 < found.score < 2.0


def test_texts_that_agree_make_a_proposal_worth_more() -> None:
    alone, twice = PastTexts(100), PastTexts(100)
    for past, behind in ((alone, [60]), (twice, [50])):
        past.add([1, 2, 3, 50, 0])
        past.add([1, 2, 3, *behind, 0])
    scores = [draft(PastSource(p, [5, 1, 2, 3]), 3, Budget(1, 1)).score for p in (alone, twice)]
    assert scores[0] < scores[1]


def test_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit: 0, limit at least 1"):
        PastTexts(0)
