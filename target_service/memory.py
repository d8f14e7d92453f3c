"""Room for a step's rows: what may be forgotten to get it, in which order."""

from __future__ import annotations

import time
from collections.abc import Container

from outrider.models.cache import blocks_for
from outrider.models.pool import KVPool
from target_service.prefix import PrefixCache
from target_service.session import Session

IDLE_S = 1.0
"""After so long without a wish an older session's rows are not kept from younger ones."""


class Memory:
    """Shares the pool among sessions; the oldest comes first, so that one always goes on.

    To make room, texts of the past are forgotten, then the rows of the youngest sessions, then
    those of older ones that have long asked for nothing, as where a client does not read. They are
    computed again when their turn comes. A session that finds no room waits.
    """

    def __init__(self, pool: KVPool, prefix: PrefixCache) -> None:
        self.pool = pool
        self.prefix = prefix
        self.sessions_forgotten = 0
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def streaming(self) -> bool:
        """Whether a session has begun to get tokens; it may be back with its next tree at once."""
        return any(session.round > 0 for session in self._sessions.values())

    def open(self, session: Session) -> None:
        """Takes a session up and gives it the blocks that are known of its prompt, with their
        features."""
        self._sessions[session.serial] = session
        wanted = session.features
        nodes = self.prefix.match(session.tokens, wanted)
        session.cache.adopt([node.block for node in nodes])
        if wanted is not None:
            first = len(session.tokens) - 1 - wanted.window if wanted.window else 0
            parts = [node.features[wanted.taps] for node in nodes if wanted.taps in node.features]
            for part in parts:
                low = max(part.start, first)
                if low < part.start + part.rows:
                    rows = part.start + part.rows - low
                    session.kept_features.append(part.rows_from(low, rows))
            session.prompt_features = list(session.kept_features)

    def close(self, session: Session) -> None:
        """Forgets a session and keeps its whole blocks for others."""
        if self._sessions.pop(session.serial, None) is not None:
            self.keep(session)

    def keep(self, session: Session) -> None:
        """Lets others find the whole blocks of what a session has committed so far."""
        rows = session.settled_rows if session.bits_exact else 0
        taps = session.features.taps if session.features else ()
        self.prefix.add(session.tokens[:rows], session.cache.table, taps, session.prompt_features)

    def make_room(
        self,
        session: Session,
        rows: int,
        spared: Container[int] = (),
        asking: Container[int] = (),
    ) -> bool:
        """Reserves room for `rows` more rows of a session; False where it must wait.

        No step may be in progress.

        Args:
            spared: serials of sessions that keep their rows.
            asking: serials of those that wait for a step.
        """
        wanted = session.rows_after_compaction + rows
        self.prefix.evict(self._short(session, wanted))
        latest = time.monotonic() - IDLE_S
        others = [
            other
            for serial, other in reversed(self._sessions.items())
            if serial not in spared
            and other.cache.table
            and (serial > session.serial or (serial not in asking and other.active < latest))
        ]
        if self._short(session, wanted) > sum(len(other.cache.table) for other in others):
            return False  # it would take all of theirs in vain
        for other in others:
            if self._short(session, wanted) <= 0:
                break
            other.forget_rows()
            self.sessions_forgotten += 1
            self.prefix.evict(self._short(session, wanted))
        if self._short(session, wanted) > 0:
            return False
        session.cache.reserve(wanted)
        return True

    def _short(self, session: Session, rows: int) -> int:
        """Blocks that the pool lacks for a session to have `rows` rows in all."""
        return blocks_for(rows) - len(session.cache.table) - self.pool.free
