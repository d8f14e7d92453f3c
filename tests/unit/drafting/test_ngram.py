from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.continuations import draft
from outrider.drafting.ngram import Calibration, NgramDrafter, TextSource
from outrider.drafting.suffix_automaton import SuffixAutomaton

GREEDY = SamplingParams(temperature=0.0)


def proposal(
    tokens: list[int], depth: int, nodes: int, drafter: NgramDrafter | None = None
) -> Proposal:
    drafter = drafter or NgramDrafter()
    session = drafter.open(tokens, GREEDY)
    assert drafter.prefill(session)
    return drafter.propose([(session, Budget(depth, nodes))])[0]


def propose(
    tokens: list[int], depth: int, nodes: int, drafter: NgramDrafter | None = None
) -> TokenTree:
    return proposal(tokens, depth, nodes, drafter).tree


def test_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    tree = propose([1, 2, 3, 7, 7, 2, 3, 8, 8, 1, 2, 3], 2, 2)
    assert tree == TokenTree.chain(3, [7, 7])


def test_most_recent_of_equally_long_matches_wins() -> None:
    tree = propose([1, 2, 5, 6, 1, 2, 7, 8, 1, 2], 2, 2)
    assert tree == TokenTree.chain(2, [7, 8])


def test_most_frequent_continuation_wins_over_a_single_recent_one() -> None:
    tree = propose([1, 2, 5, 1, 2, 5, 1, 2, 5, 1, 2, 5, 1, 2, 7, 1, 2], 1, 1)
    assert tree == TokenTree.chain(2, [5])


def test_a_chain_goes_on_through_the_end_of_the_text() -> None:
    assert propose([5, 5, 5, 5, 5, 5], 8, 8) == TokenTree.chain(5, [5] * 8)


def test_matches_share_their_beginning_in_a_tree() -> None:
    tree = propose([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2], 2, 8)
    assert tree.tokens == (2, 3, 5, 4)
    assert tree.parents == (-1, 0, 1, 1)


def test_tree_stays_within_nodes_and_depth() -> None:
    tokens = [9, 8, 1, 2, 3, 9, 8, 1, 2, 4, 9, 8, 1, 2, 5, 9, 8, 1, 2]
    tree = propose(tokens, 3, 4)
    assert tree.drafted == 4
    assert not tree.is_chain
    assert propose(tokens, 1, 8).depth == 1


def test_no_match_gives_an_empty_proposal_of_no_worth() -> None:
    for tokens in ([1, 2, 3, 4], [1]):
        found = proposal(tokens, 4, 4)
        assert found.tree == TokenTree.root_only(tokens[-1])
        assert found.score == 0.0


def test_single_token_match_is_proposed_where_it_is_clear_and_allowed() -> None:
    assert propose([1, 2, 1], 1, 1) == TokenTree.chain(1, [2])
    many_ways = [token for other in range(2, 12) for token in (1, other)]
    assert propose([*many_ways, 1], 1, 1).drafted == 0
    assert propose([1, 2, 1], 1, 1, NgramDrafter(min_n=2)) == TokenTree.root_only(1)


def test_score_grows_with_the_match_and_stays_below_the_depth() -> None:
    short = proposal([1, 2, 5, 6, 7, 8, 0, 1, 2], 4, 4).score
    long = proposal([3, 4, 1, 2, 5, 6, 7, 8, 0, 3, 4, 1, 2], 4, 4).score
    assert short is not None
    assert long is not None
    assert 0.0 < short < long < 4.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_n": 0}, "min_n: 0, limit at least 1"),
        ({"past_tokens": -1}, "past_tokens: -1, limit at least 0"),
    ],
)
def test_nonsense_is_refused_by_name_and_limit(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NgramDrafter(**fields)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=6),
    st.sampled_from([Budget(3, 3), Budget(4, 12)]),
)
def test_a_session_that_grew_proposes_what_a_new_one_would(
    prompt: list[int], rounds: list[list[int]], budget: Budget
) -> None:
    drafter = NgramDrafter()
    grown = drafter.open(prompt, GREEDY)
    for new in rounds:
        drafter.observe(grown, new)
        grown.state.calibration = Calibration()
        fresh = drafter.open(grown.tokens, GREEDY)
        assert drafter.propose([(grown, budget)]) == drafter.propose([(fresh, budget)])


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(0, 8),
    st.integers(0, 12),
)
def test_tree_fits_the_budget_and_every_pair_in_it_occurs_in_the_text(
    tokens: list[int], depth: int, nodes: int
) -> None:
    tree = propose(tokens, depth, nodes)
    assert tree.depth <= depth
    assert tree.drafted <= nodes
    assert tree.is_chain or nodes > depth
    pairs = set(pairwise(tokens))
    for node in range(1, len(tree)):
        assert (tree.tokens[tree.parents[node]], tree.tokens[node]) in pairs


def test_prefill_works_in_slices() -> None:
    drafter = NgramDrafter()
    session = drafter.open([1, 2, 3, 1, 2], GREEDY)
    assert [drafter.prefill(session, 2) for _ in range(3)] == [False, False, True]
    assert len(session.state.text) == 5


def test_guesses_that_fail_lower_the_worth_of_later_ones_and_time_heals() -> None:
    drafter = NgramDrafter()
    calibration = Calibration()
    text = [5, 6, 7, 5, 6, 7, 5, 6, 7]
    session = drafter.open(text, GREEDY)
    session.state.calibration = calibration
    scores = []
    for _ in range(6):
        scores.append(drafter.propose([(session, Budget(1, 1))])[0].score)
        calibration.observe([99])
    assert scores == sorted(scores, reverse=True)
    assert calibration.scale < 0.6
    for _ in range(200):
        calibration.last = None
        drafter.propose([(session, Budget(0, 0))])
        calibration.observe([99])
    assert calibration.scale > 0.99


def test_guesses_that_hold_keep_their_worth() -> None:
    drafter = NgramDrafter()
    session = drafter.open([5, 6, 7] * 8, GREEDY)
    for token in [5, 6, 7] * 4:
        drafter.propose([(session, Budget(1, 1))])
        drafter.observe(session, [token])
    assert session.state.calibration.scale >= 1.0


def test_past_outputs_are_looked_up_only_where_asked_for() -> None:
    for past_tokens, expected in ((0, []), (100, [4, 5, 6])):
        drafter = NgramDrafter(past_tokens=past_tokens)
        first = drafter.open([7], GREEDY)
        drafter.observe(first, [1, 2, 3, 4, 5, 6])
        drafter.close(first)
        assert propose([9, 1, 2, 3], 3, 3, drafter) == TokenTree.chain(3, expected)


def test_prompts_of_others_are_not_remembered() -> None:
    drafter = NgramDrafter(past_tokens=100)
    first = drafter.open([1, 2, 3, 4, 5, 6], GREEDY)
    drafter.observe(first, [20, 21, 22, 23])
    drafter.close(first)
    assert propose([9, 1, 2, 3], 3, 3, drafter).drafted == 0
    assert propose([9, 20, 21, 22], 1, 1, drafter) == TokenTree.chain(22, [23])


def test_the_better_of_the_text_and_the_past_is_proposed() -> None:
    drafter = NgramDrafter(past_tokens=100)
    first = drafter.open([7], GREEDY)
    drafter.observe(first, [30, 31, 1, 2, 3, 50, 51])
    drafter.close(first)
    assert propose([30, 31, 1, 2, 3, 40, 0, 2, 3], 1, 1, drafter) == TokenTree.chain(3, [40])
    text = [2, 3, 40, 0, 30, 31, 1, 2, 3]
    assert propose(text, 1, 1, drafter) == TokenTree.chain(3, [50])


def test_the_cost_of_a_proposal_is_bounded_by_the_budget_and_not_by_the_text() -> None:
    """Places read for a proposal, counted; a text whose every token was followed by many."""

    class Counting(TextSource):
        read = 0

        def contexts(self, place: tuple[int, int]):  # type: ignore[no-untyped-def]
            for context in super().contexts(place):
                self.read += 1
                yield context

    text = SuffixAutomaton()
    text.extend([7] * 10_000)
    source = Counting(text)
    draft(source, 7, Budget(8, 8))
    assert source.read <= 8 * text.reach
