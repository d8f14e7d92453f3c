import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_service.drafters.comb import comb


@pytest.mark.parametrize(
    ("depth", "nodes", "expected"),
    [
        (4, 4, [1, 1, 1, 1]),
        (4, 2, [1, 1]),
        (4, 6, [2, 2, 1, 1]),
        (3, 7, [3, 2, 2]),
        (1, 3, [3]),
        (0, 5, []),
        (5, 0, []),
        (-2, 4, []),
    ],
)
def test_siblings_are_spread_from_the_top_down(depth: int, nodes: int, expected: list[int]) -> None:
    assert comb(depth, nodes) == expected


@given(st.integers(1, 20), st.integers(1, 80))
def test_comb_uses_every_node_and_never_widens_downwards(depth: int, nodes: int) -> None:
    shape = comb(depth, nodes)
    assert sum(shape) == nodes
    assert len(shape) == min(depth, nodes)
    assert shape == sorted(shape, reverse=True)
    assert max(shape) - min(shape) <= 1
