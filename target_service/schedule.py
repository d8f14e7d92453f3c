"""What waits for the target, and what of it goes into the next step.

Each step takes every waiting tree, one token of every free run, and rows of prompts up to a budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.core.round import Evidence, Features, Ids, Load
from outrider.core.tree import TokenTree
from target_service.memory import Memory
from target_service.pace import CHUNK, Pace
from target_service.session import FreeRun, Session
from target_service.step import Work

AHEAD = 32  # tokens that a free run may be in front of what the orchestrator has acknowledged


@dataclass(frozen=True)
class RunTokens:
    """Tokens that a free run committed in a step; `ended` with the last of them, or with none when
    halted."""

    tokens: tuple[int, ...]
    base_len: int
    ended: bool
    queue_us: int = 0
    forward_us: int = 0
    load: Load = field(default_factory=Load)
    features: Features | None = None


@dataclass
class Pass:
    """A tree that waits for its evidence; missing rows in front of its root are prefilled first."""

    session: Session
    tree: TokenTree
    supports: Mapping[int, Ids]
    tree_exact: bool
    future: asyncio.Future[Evidence]
    on_features: Callable[[Features], None]
    arrived: float = field(default_factory=time.perf_counter)

    def next_work(self, budget: int) -> Work:
        """Its rows in the next step: the tree, or rows of committed tokens that are missing in
        front of its root, at most `budget`; the last of a prompt bring the bare root with them."""
        session = self.session
        missing = missing_rows(session, budget, with_root=session.round == 0)
        if missing is not None:
            return missing
        tree = self.tree
        exact = self.tree_exact
        return Work(session, tree.tokens, tree.parents, tree, self.supports, exact)


@dataclass
class Run:
    """A free run and who hears of its tokens."""

    session: Session
    state: FreeRun
    deliver: Callable[[RunTokens], None]
    fail: Callable[[BaseException], None]
    ready_since: float = field(default_factory=time.perf_counter)

    def tell(
        self,
        tokens: tuple[int, ...],
        times: tuple[int, int],
        ended: bool,
        load: Load,
        features: Features | None,
    ) -> None:
        """Delivers a step's tokens; `times`: microseconds waited and computed."""
        self.deliver(RunTokens(tokens, self.session.base_len, ended, *times, load, features))

    def next_work(self, budget: int) -> Work:
        """Its one row in the next step, or rows that are missing in front of it."""
        missing = missing_rows(self.session, budget, with_root=False)
        if missing is not None:
            return missing
        tree = TokenTree.root_only(self.session.tokens[-1])
        return Work(self.session, tree.tokens, tree.parents, tree)

    @property
    def ready(self) -> bool:
        """Whether it may commit another token."""
        return self.session.base_len < self.state.acknowledged + AHEAD


Item = Pass | Run


def missing_rows(session: Session, budget: int, *, with_root: bool) -> Work | None:
    """Rows of committed tokens that the cache lacks; None where it lacks none.

    They end at a multiple of CHUNK or with the last, so that others find whole chunks.
    """
    start, end = (
        session.rows_after_compaction,
        session.base_len if with_root else session.base_len - 1,
    )
    if start >= end:
        return None
    if end - start > budget:
        end = min(end, max(start // CHUNK + 1, (start + budget) // CHUNK) * CHUNK)
    tree = TokenTree.root_only(session.tokens[-1]) if end == session.base_len else None
    return Work(session, session.tokens[start:end], range(-1, end - start - 1), tree)


class Schedule:
    """Passes and free runs in progress, by session."""

    def __init__(self, memory: Memory, pace: Pace, batch: int) -> None:
        self._memory = memory
        self._pace = pace
        self._batch = batch
        self._items: dict[int, Item] = {}
        self._last = Load()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Takes an item up; a session has one at a time."""
        item.session.active = time.monotonic()
        self._items[id(item.session)] = item

    def remove(self, session: Session) -> Item | None:
        """Forgets what is in progress for a session."""
        return self._items.pop(id(session), None)

    def find(self, session: Session) -> Item | None:
        """What is in progress for a session."""
        return self._items.get(id(session))

    def items(self) -> list[Item]:
        """All that is in progress."""
        return list(self._items.values())

    def take(self) -> list[tuple[Item, Work]]:
        """Items that go into the next step, with their rows, for which there is room.

        Where more wait than a step takes, those come first that took part in fewer steps; others
        that find no room leave their places to the next.
        """
        ready = [item for item in self._items.values() if isinstance(item, Pass) or item.ready]
        waiting = len(ready)
        order = _steps if waiting > self._batch else _serial
        budget = self._pace.rows(self._memory.streaming)
        taken: list[tuple[Item, Work]] = []
        # Rows of those taken already stay, whoever makes room behind them.
        spared: set[int] = set()
        asking = {_serial(item) for item in ready}
        for item in sorted(ready, key=order):
            if len(taken) == self._batch:
                break
            work = item.next_work(budget)
            prefill = work.tree is None or len(work.tokens) > len(work.tree)
            if prefill and budget <= 0:
                continue
            if not self._memory.make_room(item.session, len(work.tokens), spared, asking):
                continue
            budget -= len(work.tokens) if prefill else 0
            taken.append((item, work))
            spared.add(item.session.serial)
            item.session.active = time.monotonic()
        if taken:
            rows = sum(len(work.tokens) for _, work in taken)
            self._last = Load(rows=rows, batch=len(taken), left_out=waiting - len(taken))
        return taken

    def load(self, sessions: int) -> Load:
        """What is in progress, and what the last step that was taken is made of."""
        return replace(self._last, sessions=sessions, queue=len(self._items))


def _serial(item: Item) -> int:
    return item.session.serial


def _steps(item: Item) -> tuple[int, int]:
    return item.session.steps, item.session.serial


def prompt_rows(works: Sequence[Work]) -> tuple[int, int]:
    """Rows that a step prefills or computes again, and those of streams that have begun."""
    rows = sum(len(work.tokens) - (len(work.tree) if work.tree else 0) for work in works)
    trees = (work.tree for work in works if work.session.round > 0)
    return rows, sum(len(tree) for tree in trees if tree is not None)
