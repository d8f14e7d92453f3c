"""Rates and times of drafters."""

import pytest

from draft_service.drafters.track import DEPTHS, Mean, Passes, Rates, kept_depth
from outrider.core.tree import TokenTree

TREE = TokenTree((1, 10, 20, 11, 21), (-1, 0, 0, 1, 2))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([10, 11, 99], 2),
        ([20, 21, 99], 2),
        ([20, 11], 1),
        ([30], 0),
        ([10], 1),
        ([10, 11], 2),
        ([], 0),
    ],
)
def test_the_walk_is_repeated_from_committed_tokens(tokens: list[int], expected: int) -> None:
    assert kept_depth(TREE, tokens) == expected
    assert kept_depth(TokenTree.root_only(1), tokens) == 0


def test_rates_are_conditional_and_drawn_to_the_prior() -> None:
    rates = Rates(0.5, weight=2.0, decay=1.0)
    for asked, kept in ((3, 3), (3, 1), (2, 0)):
        rates.book(asked, kept)
    assert rates.at(1) == pytest.approx((2 + 1) / (3 + 2))
    assert rates.at(2) == pytest.approx((1 + 1) / (2 + 2))
    assert rates.at(3) == pytest.approx((1 + 1) / (1 + 2))
    assert rates.at(4) == 0.5
    assert rates.accepted(2) == pytest.approx([0.6, 0.6 + 0.3])
    assert rates.accepted(0) == []


def test_rates_fade_towards_other_rates_however_long_it_takes() -> None:
    general = Rates(0.9, weight=1.0, decay=1.0)
    rates = Rates(general, weight=4.0, decay=0.97)
    plain_kept = plain_tried = 0.0
    for turn in range(2_000):
        rates.fade()
        plain_kept, plain_tried = plain_kept * 0.97, plain_tried * 0.97
        if turn % 3 == 0 and turn < 1_000:
            rates.book(1, 0)
            plain_tried += 1.0
        expected = (plain_kept + 4.0 * 0.9) / (plain_tried + 4.0)
        assert rates.at(1) == pytest.approx(expected, rel=1e-6)
    assert rates.at(1) == pytest.approx(0.9, abs=1e-6)


def test_depths_beyond_the_last_share_its_rate() -> None:
    rates = Rates(0.5, weight=1.0, decay=1.0)
    rates.book(DEPTHS + 5, DEPTHS + 5)
    assert rates.at(DEPTHS) == rates.at(DEPTHS + 3) == 0.75


def test_mean_forgets() -> None:
    mean = Mean(0.5)
    assert mean.value is None
    mean.add(1.0)
    assert mean.value == 1.0
    mean.add(4.0)
    assert mean.value == pytest.approx((0.5 + 4.0) / 1.5)


def test_passes_find_the_line_of_what_they_saw() -> None:
    passes = Passes(first=0.06)
    assert (passes.base, passes.row) == (0.0, 0.06)
    for turn in range(400):
        nodes = turn % 9
        passes.add(nodes, 0.02 + 0.004 * nodes)
    assert passes.base == pytest.approx(0.02, rel=0.05)
    assert passes.row == pytest.approx(0.2, rel=0.1)


def test_without_different_numbers_of_nodes_the_first_slope_stays() -> None:
    passes = Passes(first=0.05)
    for _ in range(100):
        passes.add(4, 0.024)
    assert passes.row == pytest.approx(0.05)
    assert passes.base == pytest.approx(0.02)


def test_one_pass_that_stood_in_a_queue_does_not_upset_the_line() -> None:
    passes = Passes(first=0.05)
    for turn in range(100):
        passes.add(turn % 5, 0.02 + 0.001 * (turn % 5))
    before = passes.base
    passes.add(4, 60.0)
    assert passes.base < 1.5 * before
    assert passes.row < 0.5


def test_line_never_falls_nor_starts_below_zero() -> None:
    passes = Passes(first=0.05)
    for turn in range(100):
        passes.add(turn % 5, 0.02 - 0.004 * (turn % 5))
    assert passes.row == 0.0
    steep = Passes(first=0.05)
    for turn in range(100):
        steep.add(turn % 5, 0.01 * (turn % 5))
    assert steep.base > 0.0
