"""Lookahead decoding: the target's own parallel guesses as drafts, without any other model.

Window and guesses are one token tree: the window's rows ask the target how its trajectories go on,
the guesses are n-grams of the pool that begin with the text's last token. Cells and guesses that
agree share a node. The pool also learns from the prompt and the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.core.tree import TokenTree, TreeBuilder
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.jacobi import Cell, Pool, Shape, Window


@dataclass
class _State:
    """What a session keeps.

    depth, nodes_most: the widest budget so far, which the shape is for: a text's last rounds have
        less depth, and then guesses are all there is.
    read: tokens whose n-grams are in the pool.
    asked, nodes: the last tree, None where its answer has come; the node of each cell in it.
    """

    depth: int = 0
    nodes_most: int = 0
    shape: Shape = field(default_factory=lambda: Shape.within(0, 0))
    pool: Pool = field(default_factory=Pool)
    window: Window | None = None
    read: int = 0
    asked: TokenTree | None = None
    nodes: dict[Cell, int] = field(default_factory=dict)

    def shaped(self, budget: Budget) -> Shape:
        """The shape; a wider budget than before brings a new one, and all begins anew."""
        if budget.depth > self.depth or budget.nodes > self.nodes_most:
            self.depth = max(self.depth, budget.depth)
            self.nodes_most = max(self.nodes_most, budget.nodes)
            shape = Shape.within(self.depth, self.nodes_most)
            if shape != self.shape:
                self.shape, self.pool, self.window, self.read = shape, Pool(), None, 0
        return self.shape


class LookaheadDrafter(Drafter):
    """Guesses n-grams that the target wrote, in its text or in a window of trajectories.

    The target's tokens at the nodes of the last tree move the window; where they are missing, after
    a free run or a late proposal, it stays as it is. All children are unsampled.
    """

    method = "lookahead"
    recommended_depth = 4
    recommended_nodes = 12
    wants_samples = True
    whole_trees = True  # the window moves in a tree that has room for it

    def __init__(self) -> None:
        # Only for first guesses, which cost acceptance where they are bad; a fixed seed keeps runs
        # comparable.
        self._rng = np.random.default_rng(0)

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with an empty pool and no window."""
        return DraftSession(list(prompt), sampling, _State())

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Moves the window where `samples` answers the last tree, and appends the new tokens."""
        state: _State = session.state
        tree, state.asked = state.asked, None
        answered = tree is not None and len(samples) == len(tree) and state.nodes
        if tree is not None and state.window is not None and answered:
            answers = [samples[state.nodes[cell]] for cell in state.window.frontier]
            for key, gram in state.window.step(tree.tokens[0], answers):
                state.pool.add(key, gram)
        session.tokens.extend(new_tokens)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """Each session on its own."""
        return [Proposal(self._tree(session, budget), self.method) for session, budget in batch]

    def _tree(self, session: DraftSession, budget: Budget) -> TokenTree:
        state: _State = session.state
        shape = state.shaped(budget)
        self._read(session)
        tree = TreeBuilder(session.tokens[-1])
        state.nodes = {}
        if shape.columns and shape.depth <= budget.depth and shape.nodes <= budget.nodes:
            if state.window is None:
                state.window = Window(shape, session.tokens, self._rng)
            state.nodes[0, 0] = 0
            for cell, above, token in state.window.cells():
                state.nodes[cell] = tree.add(state.nodes[above], token)
        _add_guesses(tree, state.pool.behind(session.tokens[-1]), budget)
        state.asked = tree.build()
        return state.asked

    def _read(self, session: DraftSession) -> None:
        """Puts the text's n-grams into the pool."""
        state: _State = session.state
        tokens, n = session.tokens, state.shape.n
        end = len(tokens) - n + 1
        for start in range(state.read, end):
            state.pool.add(tokens[start], tuple(tokens[start + 1 : start + n]))
        state.read = max(state.read, end)


def _add_guesses(tree: TreeBuilder, grams: Sequence[tuple[int, ...]], budget: Budget) -> None:
    """Adds n-grams below the root as long as there is room, equal beginnings shared."""
    for gram in grams:
        node = 0
        for token in gram[: budget.depth]:
            if len(tree) > budget.nodes:
                return
            node = tree.add(node, token)
