import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.tree import TokenTree, TreeBuilder, TreeError

BRANCHED = TokenTree((9, 1, 2, 1, 5, 1), (-1, 0, 0, 1, 1, 3))


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ((1, 2), (-1,), r"tree\.parents: 1 entries for 2 tokens"),
        ((), (), r"tree\.parents: node 0 must be the root"),
        ((1,), (0,), r"tree\.parents: node 0 must be the root"),
        ((1, 2), (-1, 1), r"tree\.parents: node 1 has parent 1, limit 0 to 0"),
        ((1, 2, 3), (-1, 2, 0), r"tree\.parents: node 1 has parent 2, limit 0 to 0"),
        ((1, 2), (-1, -1), r"tree\.parents: node 1 has parent -1, limit 0 to 0"),
        ((1, 2, 2), (-1, 0, 0), r"tree\.tokens: token 2 occurs twice below node 0"),
        ((1, 2, 3, 3), (-1, 0, 1, 1), r"tree\.tokens: token 3 occurs twice below node 1"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(
    tokens: tuple[int, ...], parents: tuple[int, ...], message: str
) -> None:
    with pytest.raises(TreeError, match=message):
        TokenTree(tokens, parents)


def test_same_token_below_different_parents_is_allowed() -> None:
    assert BRANCHED.tokens.count(1) == 3


def test_children_stand_in_the_order_of_the_arrays() -> None:
    assert TokenTree((0, 7, 3, 5), (-1, 0, 0, 0)).children[0] == (1, 2, 3)
    assert BRANCHED.children == ((1, 2), (3, 4), (), (5,), (), ())


def test_depths_paths_and_size() -> None:
    assert BRANCHED.depths == (0, 1, 1, 2, 2, 3)
    assert (BRANCHED.depth, BRANCHED.drafted, len(BRANCHED)) == (3, 5, 6)
    assert [BRANCHED.path(node) for node in range(6)] == [(), (1,), (2,), (1, 3), (1, 4), (1, 3, 5)]


def test_child_with_looks_at_the_nodes_own_children_only() -> None:
    assert BRANCHED.child_with(0, 2) == 2
    assert BRANCHED.child_with(1, 5) == 4
    assert BRANCHED.child_with(0, 5) is None
    assert BRANCHED.child_with(5, 1) is None


def test_chains_and_bare_roots() -> None:
    chain = TokenTree.chain(4, [5, 5, 6])
    assert (chain.tokens, chain.parents, chain.is_chain) == ((4, 5, 5, 6), (-1, 0, 1, 2), True)
    assert TokenTree.chain(4, []) == TokenTree.root_only(4)
    assert TokenTree.root_only(4).depth == 0
    assert TokenTree.root_only(4).is_chain
    assert not BRANCHED.is_chain


def test_builder_merges_siblings_with_the_same_token_only() -> None:
    builder = TreeBuilder(9)
    first = builder.add(0, 1)
    assert builder.add(0, 1) == first
    below = builder.add(first, 1)
    assert below != first
    assert builder.add(below, 1) != below
    assert len(builder) == 4
    assert builder.build() == TokenTree.chain(9, [1, 1, 1])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=30))
def test_what_a_builder_builds_is_a_tree_and_survives_the_wires_form(
    edges: list[tuple[int, int]],
) -> None:
    builder = TreeBuilder(0)
    asked = set()
    for parent, token in edges:
        if parent < len(builder):
            node = builder.add(parent, token)
            asked.add((parent, token, node))
    tree = builder.build()
    assert {(tree.parents[n], tree.tokens[n], n) for n in range(1, len(tree))} == asked
    assert TokenTree.from_drafted(0, tree.tokens[1:], tree.parents[1:]) == tree
    assert all(tree.path(node)[-1] == node for node in range(1, len(tree)))
    assert all(len(tree.path(node)) == tree.depths[node] for node in range(len(tree)))
