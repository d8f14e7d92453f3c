import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.round import Budget, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.ngram import NgramDrafter, NgramIndex

GREEDY = SamplingParams(temperature=0.0)


def propose(
    tokens: list[int], depth: int, nodes: int, drafter: NgramDrafter | None = None
) -> TokenTree:
    drafter = drafter or NgramDrafter()
    session = drafter.open(tokens, GREEDY)
    assert drafter.prefill(session)
    return drafter.propose([(session, Budget(depth, nodes))])[0].tree


def brute_force(tokens: list[int], min_n: int, max_n: int) -> list[int]:
    found: list[int] = []
    for n in range(max_n, min_n - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[len(tokens) - n :] and end not in found:
                found.append(end)
    return found


def test_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    tree = propose([1, 2, 3, 7, 7, 2, 3, 8, 8, 1, 2, 3], 2, 2)
    assert tree == TokenTree.chain(3, [7, 7])


def test_most_recent_of_equally_long_matches_wins() -> None:
    tree = propose([1, 2, 5, 6, 1, 2, 7, 8, 1, 2], 2, 2)
    assert tree == TokenTree.chain(2, [7, 8])


def test_chain_ends_where_the_match_ends() -> None:
    assert propose([1, 2, 9, 1, 2], 8, 8) == TokenTree.chain(2, [9, 1, 2])


def test_earlier_match_that_agrees_carries_a_short_chain_on() -> None:
    assert propose([5, 5, 5, 5, 5, 5], 3, 3) == TokenTree.chain(5, [5, 5, 5])


def test_earlier_match_that_disagrees_does_not_change_a_chain() -> None:
    tree = propose([1, 2, 7, 7, 1, 2, 8, 1, 2], 4, 4)
    assert tree == TokenTree.chain(2, [8, 1, 2])


def test_matches_share_their_beginning_in_a_tree() -> None:
    tree = propose([1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2], 2, 8)
    assert tree.tokens == (2, 3, 5, 4)
    assert tree.parents == (-1, 0, 1, 1)


def test_tree_stays_within_nodes_and_depth() -> None:
    tokens = [1, 2, 3, 0, 1, 2, 4, 0, 1, 2, 5, 0, 1, 2, 6, 0, 1, 2]
    tree = propose(tokens, 3, 5)
    assert tree.drafted == 5
    assert tree.depth == 3
    assert not tree.is_chain


def test_no_match_gives_an_empty_proposal() -> None:
    assert propose([1, 2, 3, 4], 4, 4) == TokenTree.root_only(4)
    assert propose([1], 4, 4) == TokenTree.root_only(1)


def test_single_token_match_counts_only_where_allowed() -> None:
    assert propose([1, 2, 1], 1, 1).drafted == 0
    assert propose([1, 2, 1], 1, 1, NgramDrafter(min_n=1)) == TokenTree.chain(1, [2])


def test_bad_n_is_refused_by_name_and_limit() -> None:
    with pytest.raises(ValueError, match="min_n: 5, limit 1 to max_n = 4"):
        NgramDrafter(min_n=5)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=6),
)
def test_incremental_index_equals_brute_force(prompt: list[int], rounds: list[list[int]]) -> None:
    tokens = list(prompt)
    index = NgramIndex(1, 4)
    index.update(tokens)
    assert list(index.matches(tokens)) == brute_force(tokens, 1, 4)
    for new in rounds:
        tokens += new
        index.update(tokens)
        assert list(index.matches(tokens)) == brute_force(tokens, 1, 4)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(0, 8),
    st.integers(0, 12),
)
def test_chain_for_few_nodes_and_every_path_occurs_in_the_text(
    tokens: list[int], depth: int, nodes: int
) -> None:
    tree = propose(tokens, depth, nodes)
    assert tree.depth <= depth
    assert tree.drafted <= nodes
    assert tree.is_chain or nodes > depth
    text = ",".join(map(str, tokens))
    for node in range(1, len(tree)):
        path = [tokens[-1], *(tree.tokens[n] for n in tree.path(node))]
        assert ",".join(map(str, path)) in text


def test_a_step_in_a_long_context_costs_little() -> None:
    drafter = NgramDrafter()
    session = drafter.open([i * i % 977 for i in range(8000)], GREEDY)
    drafter.prefill(session)
    started = time.perf_counter()
    for _ in range(100):
        drafter.observe(session, [5, 7])
        drafter.propose([(session, Budget(8, 16))])
    assert (time.perf_counter() - started) / 100 < 0.005
