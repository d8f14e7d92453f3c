"""Scoring on examples small enough to be computed by hand."""

import pytest

from outrider.core.round import Budget
from outrider.core.tree import TokenTree
from outrider.drafting.continuations import (
    LEAST,
    MOST_FOLLOWERS,
    RECENT,
    Context,
    Follower,
    draft,
    guesses,
    trust,
)

Paths = dict[str, list[tuple[int, dict[int, tuple[int, int]]]]]


class Written:
    """Contexts written down by place: (length, {token: (count, end)}); a path's place is its name
    with the token behind it."""

    def __init__(self, places: Paths) -> None:
        self.places = places

    def start(self) -> str | None:
        return "" if self.places else None

    def contexts(self, place: str) -> list[Context[str]]:
        return [
            Context(
                length,
                [
                    Follower(token, count, end, f"{place}{token}")
                    for token, (count, end) in followers.items()
                ],
            )
            for length, followers in self.places.get(place, [])
        ]


def chances(places: Paths) -> dict[int, float]:
    return {token: chance for token, (chance, _) in guesses(Written(places), "").items()}


def test_trust_grows_with_the_match() -> None:
    assert [trust(n) for n in (1, 2, 4, 10)] == [0.25, 0.5, 0.75, 0.9]


def test_one_context_gives_its_trust_to_what_always_followed() -> None:
    assert chances({"": [(4, {5: (3, 9)})]}) == {5: pytest.approx(0.75)}


def test_a_context_is_split_by_frequency_and_a_part_goes_to_the_most_recent() -> None:
    found = chances({"": [(2, {5: (3, 20), 6: (1, 30)})]})
    assert found[5] == pytest.approx(0.5 * (1 - RECENT) * 3 / 4)
    assert found[6] == pytest.approx(0.5 * ((1 - RECENT) / 4 + RECENT))


def test_shorter_contexts_share_what_longer_ones_leave() -> None:
    found = chances({"": [(4, {5: (1, 9)}), (2, {5: (1, 9), 6: (1, 4)})]})
    assert found[5] == pytest.approx(0.75 + 0.25 * 0.5 * ((1 - RECENT) / 2 + RECENT))
    assert found[6] == pytest.approx(0.25 * 0.5 * (1 - RECENT) / 2)


def test_a_context_that_went_on_in_too_many_ways_is_passed_over() -> None:
    many = {token: (1, token) for token in range(MOST_FOLLOWERS + 1)}
    assert chances({"": [(4, many), (2, {5: (1, 9)})]}) == {5: 0.5}


def test_scale_multiplies_and_no_chance_exceeds_one() -> None:
    source = Written({"": [(4, {5: (1, 9)})]})
    assert guesses(source, "", 0.5)[5][0] == pytest.approx(0.375)
    assert guesses(source, "", 3.0)[5][0] == 1.0


def test_score_is_the_sum_of_path_probabilities() -> None:
    source = Written({"": [(4, {5: (1, 9)})], "5": [(5, {6: (1, 10)})], "56": [(6, {7: (1, 11)})]})
    found = draft(source, 1, Budget(2, 2))
    assert found.tree == TokenTree.chain(1, [5, 6])
    assert found.paths == (1.0, 0.75, pytest.approx(0.75 * 0.8))
    assert found.score == pytest.approx(0.75 + 0.75 * 0.8)


def test_a_chain_follows_the_likeliest_and_a_tree_pops_the_best_node_wherever_it_is() -> None:
    source = Written(
        {"": [(10, {5: (6, 1), 6: (4, 2)})], "5": [(2, {7: (1, 3)})], "6": [(20, {8: (1, 4)})]}
    )
    likely, other = 0.9 * 0.7 * 0.6, 0.9 * (0.7 * 0.4 + 0.3)
    assert other > likely  # the most recent one is the likelier here
    assert draft(source, 1, Budget(2, 2)).tree == TokenTree.chain(1, [6, 8])
    tree = draft(source, 1, Budget(2, 4)).tree
    assert tree.tokens == (1, 6, 8, 5, 7)
    assert tree.parents == (-1, 0, 1, 0, 3)
    assert draft(source, 1, Budget(2, 3)).tree.tokens == (1, 6, 8, 5)


def test_a_draft_ends_where_a_node_is_not_worth_its_row() -> None:
    source = Written({"": [(1, {5: (1, 9)})], "5": [(1, {6: (1, 10)})]})
    assert LEAST > 0.25 * 0.25
    assert draft(source, 1, Budget(4, 4)).tree == TokenTree.chain(1, [5])
    assert draft(source, 1, Budget(4, 4, least_node=0.05)).tree == TokenTree.chain(1, [5, 6])


def test_a_draft_ends_where_a_node_falls_below_p_min() -> None:
    source = Written({"": [(10, {5: (1, 9)})], "5": [(2, {6: (1, 10)})]})
    assert draft(source, 1, Budget(4, 4, p_min=0.6)).tree == TokenTree.chain(1, [5])


@pytest.mark.parametrize("budget", [Budget(0, 0), Budget(0, 3), Budget(3, 0)])
def test_no_budget_or_no_match_gives_the_root_alone(budget: Budget) -> None:
    source = Written({"": [(10, {5: (1, 9)})]})
    assert draft(source, 1, budget).tree == TokenTree.root_only(1)
    assert draft(Written({}), 1, Budget(4, 4)).score == 0.0
