"""What waits for the target, and what of it goes into the next step.

Each step takes every waiting tree, one token of every free run, and prefill chunks up to a budget
of rows. Prefill is cut at fixed multiples of the absolute position, never by load, so a prompt's
rows do not depend on who else is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from outrider.core.round import Evidence, Features, Ids, Load
from outrider.core.tree import TokenTree
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

    def next_work(self, chunk: int) -> Work:
        """Its rows in the next step: the tree, or a chunk of the prompt; the last ends with the
        bare root."""
        session = self.session
        if session.round > 0:
            return Work(
                session,
                self.tree.tokens,
                self.tree.parents,
                self.tree,
                self.supports,
                self.tree_exact,
            )
        start = session.cache.length
        end = min((start // chunk + 1) * chunk, session.base_len)
        tree = self.tree if end == session.base_len else None
        return Work(session, session.tokens[start:end], range(-1, end - start - 1), tree)


@dataclass
class Run:
    """A free run and who hears of its tokens."""

    session: Session
    state: FreeRun
    deliver: Callable[[RunTokens], None]
    fail: Callable[[BaseException], None]
    ready_since: float = field(default_factory=time.perf_counter)

    def next_work(self) -> Work:
        """Its one row in the next step."""
        tree = TokenTree.root_only(self.session.tokens[-1])
        return Work(self.session, tree.tokens, tree.parents, tree)

    @property
    def ready(self) -> bool:
        """Whether it may commit another token."""
        return self.session.base_len < self.state.acknowledged + AHEAD


Item = Pass | Run


class Schedule:
    """Passes and free runs in progress, by session."""

    def __init__(self, prefill_rows: int, prefill_chunk: int) -> None:
        self._prefill_rows = prefill_rows
        self._prefill_chunk = prefill_chunk
        self._items: dict[int, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Takes an item up; a session has one at a time."""
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
        """Items that go into the next step, with their rows."""
        return list(self._take())

    def _take(self) -> Iterator[tuple[Item, Work]]:
        budget = self._prefill_rows
        for item in self._items.values():
            if isinstance(item, Run):
                if item.ready:
                    yield item, item.next_work()
            elif item.session.round > 0:
                yield item, item.next_work(self._prefill_chunk)
            elif budget > 0:
                work = item.next_work(self._prefill_chunk)
                budget -= len(work.tokens)
                yield item, work
