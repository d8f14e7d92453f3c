"""Lookahead against a plain reference and on models whose next token is known."""

from collections.abc import Callable

import numpy as np
import pytest

from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import DraftSession
from outrider.drafting.jacobi import Pool, Shape, Window
from outrider.drafting.lookahead import LookaheadDrafter

GREEDY = SamplingParams(temperature=0.0)
Model = Callable[[list[int]], int]


def hashed(tokens: list[int]) -> int:
    """A next token that depends on the last three; no two runs of it look alike."""
    a, b, c = [0, 0, *tokens][-3:]
    return (7 * a + 13 * b + 29 * c + a * b * c) % 50


def counting(tokens: list[int]) -> int:
    """One more than the last: every trajectory is right one step after its guess is."""
    return (tokens[-1] + 1) % 50


def samples(tree: TokenTree, tokens: list[int], model: Model) -> list[int]:
    """The model's token at every node, as the target would answer."""
    return [model(tokens + [tree.tokens[n] for n in tree.path(node)]) for node in range(len(tree))]


def walk(tree: TokenTree, answers: list[int]) -> list[int]:
    """The committed tokens under Match."""
    node, new = 0, []
    while True:
        new.append(answers[node])
        child = tree.child_with(node, answers[node])
        if child is None:
            return new
        node = child


class ReferenceWindow:
    """The recurrence over rows of tokens, each answer computed from the text that the row sees."""

    def __init__(self, first: list[int], columns: int, n: int) -> None:
        self.rows, self.columns, self.n = [list(first)], columns, n

    def sees(self, tokens: list[int], level: int, column: int) -> list[int]:
        """The text, level 0 up to the column, and the levels above in the column itself."""
        return [
            *tokens,
            *self.rows[0][:column],
            *(self.rows[above][column] for above in range(1, level + 1)),
        ]

    def step(self, tokens: list[int], model: Model) -> list[tuple[int, tuple[int, ...]]]:
        last = len(self.rows) - 1
        width = len(self.rows[0]) + 1
        answers = [model(self.sees(tokens, last, column)) for column in range(width)]
        if len(self.rows) < self.n - 1:
            self.rows = [row[1:] for row in self.rows] + [answers[1:]]
            return []
        starts = [tokens[-1], *self.rows[0]]
        columns = list(zip(*self.rows[1:], answers, strict=True))
        later = [*self.rows[1:], answers]
        self.rows = [later[0][1:], *later[1:]]
        return list(zip(starts, columns, strict=True))


def opened(drafter: LookaheadDrafter, prompt: list[int]) -> DraftSession:
    session = drafter.open(prompt, GREEDY)
    assert drafter.prefill(session)
    return session


def ask(drafter: LookaheadDrafter, session: DraftSession, budget: Budget) -> TokenTree:
    (found,) = drafter.propose([(session, budget)])
    assert isinstance(found, Proposal)
    assert not found.drawn_from
    assert found.tree.drafted <= budget.nodes
    assert found.tree.depth <= budget.depth
    return found.tree


@pytest.mark.parametrize("budget", [Budget(4, 8), Budget(4, 12), Budget(5, 24), Budget(8, 48)])
@pytest.mark.parametrize("model", [hashed, counting])
def test_window_moves_as_the_reference_does_though_equal_siblings_share_a_node(
    budget: Budget, model: Model
) -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [3, 1, 4, 1, 5, 9, 2, 6])
    reference: ReferenceWindow | None = None
    for _ in range(20):
        tree = ask(drafter, session, budget)
        window = session.state.window
        if reference is None:
            reference = ReferenceWindow(window.levels[0], window.shape.columns, window.shape.n)
        assert window.levels == reference.rows
        answers = samples(tree, session.tokens, model)
        grams = reference.step(session.tokens, model)
        drafter.observe(session, walk(tree, answers), samples=answers)
        for key, gram in grams:
            assert gram in session.state.pool.behind(key)
    assert window.full
    assert reference is not None


def test_a_full_window_has_its_columns_in_every_level() -> None:
    shape = Shape.within(6, 24)
    window = Window(shape, [1, 2, 3], np.random.default_rng(0))
    while not window.full:
        window.step(0, list(range(len(window.frontier))))
    assert [len(level) for level in window.levels] == [shape.columns - 1] + [shape.columns] * (
        shape.n - 2
    )
    assert len(list(window.cells())) == shape.nodes


@pytest.mark.parametrize("depth", range(12))
@pytest.mark.parametrize("nodes", [0, 1, 2, 4, 5, 6, 8, 12, 16, 24, 48, 64])
def test_windows_fit_their_budget_while_they_fill_and_when_they_are_full(
    depth: int, nodes: int
) -> None:
    shape = Shape.within(depth, nodes)
    if shape.columns:
        assert shape.depth <= depth
        assert shape.nodes <= nodes // 2
        window = Window(shape, [1], np.random.default_rng(0))
        for _ in range(shape.n + 2):
            assert len(list(window.cells())) <= shape.nodes
            assert max(level + column for (level, column), _, _ in window.cells()) <= shape.depth
            window.step(0, [1] * len(window.frontier))
    else:
        assert nodes < 6 or depth < 2


def test_a_larger_budget_has_longer_n_grams() -> None:
    assert [Shape.within(8, nodes).n for nodes in (6, 16, 30)] == [3, 4, 5]


def test_guesses_are_accepted_where_the_pool_knows_the_text() -> None:
    drafter = LookaheadDrafter()
    text = [hashed([seed, 1, 2]) for seed in range(30)]
    session = opened(drafter, text + text[:5])
    tree = ask(drafter, session, Budget(4, 12))
    n = session.state.shape.n
    node = 0
    for token in text[5 : 5 + n - 1]:
        child = tree.child_with(node, token)
        assert child is not None
        node = child


def test_the_window_finds_n_grams_that_no_text_has_shown() -> None:
    """Under `counting` trajectories converge; the text never repeats, so only they can help."""

    def run(told: bool) -> int:
        drafter = LookaheadDrafter()
        session = opened(drafter, [0, 20, 40, 10])
        rounds = 0
        while len(session.tokens) < 40:
            tree = ask(drafter, session, Budget(4, 12))
            answers = samples(tree, session.tokens, counting)
            drafter.observe(session, walk(tree, answers), samples=answers if told else ())
            rounds += 1
        return rounds

    assert run(told=False) == 36  # one token a round: nothing was ever guessed right
    assert run(told=True) < 34


@pytest.mark.parametrize("wrong", [(), (1,), (1, 2, 3)])
def test_missing_or_foreign_samples_leave_the_window_as_it_is(wrong: tuple[int, ...]) -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [1, 2, 3, 4])
    ask(drafter, session, Budget(4, 12))
    before = [list(level) for level in session.state.window.levels]
    drafter.observe(session, [5, 6], samples=wrong)
    drafter.observe(session, [7])
    assert session.state.window.levels == before
    assert session.tokens == [1, 2, 3, 4, 5, 6, 7]


def test_samples_count_once() -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [1, 2, 3, 4])
    answers = samples(ask(drafter, session, Budget(4, 12)), session.tokens, hashed)
    drafter.observe(session, [5], samples=answers)
    before = [list(level) for level in session.state.window.levels]
    drafter.observe(session, [6], samples=answers)
    assert session.state.window.levels == before


def test_a_shorter_budget_at_the_texts_end_keeps_pool_and_window() -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [1, 2, 3, 4, 1, 2])
    ask(drafter, session, Budget(4, 12))
    window, pool = session.state.window, session.state.pool
    for depth in (3, 2, 1):
        ask(drafter, session, Budget(depth, 12))
        assert (session.state.window, session.state.pool) == (window, pool)
    assert ask(drafter, session, Budget(1, 1)) == TokenTree.chain(2, [3])


def test_a_chain_budget_has_room_for_guesses_alone() -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [1, 2, 3, 4, 5, 1])
    assert ask(drafter, session, Budget(4, 4)) == TokenTree.chain(1, [2, 3, 4, 5])
    assert session.state.window is None


def test_no_budget_gives_the_root_alone() -> None:
    drafter = LookaheadDrafter()
    session = opened(drafter, [1, 2, 1])
    assert ask(drafter, session, Budget(0, 0)) == TokenTree.root_only(1)


def test_pool_keeps_the_most_recent_n_grams_of_a_token() -> None:
    pool = Pool(most=2)
    for gram in ((1,), (2,), (1,), (3,)):
        pool.add(7, gram)
    assert pool.behind(7) == [(3,), (1,)]
    assert pool.behind(8) == []
