"""Drafts with an EAGLE head, which continues the target's own features."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from draft_service.drafters.choose import strategy
from draft_service.drafters.comb import comb
from draft_service.drafters.eagle_growth import Branches, Draft, Trunk
from draft_service.drafters.eagle_state import EagleState
from draft_service.drafters.feature_rows import FeatureRows
from draft_service.drafters.growth import Growth
from draft_service.drafters.head_setup import checkpoint_of, linears_of, refused, warm_up
from draft_service.drafters.rank import ranking
from draft_service.drafters.setup import Setup
from draft_service.drafters.spine import Spine
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession, FeatureSpec
from outrider.models.heads.config import EagleConfig
from outrider.models.heads.eagle_files import load_eagle
from outrider.models.heads.rows import EagleRunner
from outrider.models.heads.runner import eagle_runner
from outrider.models.heads.target import target_parts


def build(path: str | None, setup: Setup) -> EagleDrafter:
    """The drafter of the checkpoint at `path`; without one, of the target's default checkpoint.

    Raises:
        DrafterRefused: there is none, it is damaged, or it is another target's.
    """
    folder = checkpoint_of(EagleDrafter.method, path, setup)
    with refused():
        head = load_eagle(folder, target_parts(setup.target))
    runner = eagle_runner(head, torch.device(setup.device), linears_of(setup))
    drafter = EagleDrafter(runner, head.config, folder)
    warm_up(drafter, head.config.hidden_size * len(head.config.taps))
    return drafter


class EagleDrafter(Drafter):
    """Feeds the target's features of committed tokens to the head, and its own output behind them.

    A proposal's first pass takes the rows that were committed since the last one, for all sessions
    together; rows that were fed with the head's own output are discarded with the round. Before the
    first feature has come it proposes nothing.
    """

    method = "eagle"
    recommended_depth = 4
    recommended_nodes = 12

    def __init__(
        self, runner: EagleRunner, config: EagleConfig, folder: Path | None = None
    ) -> None:
        self.features = FeatureSpec(config.taps)
        self.model_name = "" if folder is None else folder.name
        self._runner = runner
        self._width = config.hidden_size * len(config.taps)
        self._context = config.context_length
        # From the operating system: a fixed seed would correlate the draft with the target's
        # samples.
        self._rng = np.random.default_rng()

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with an empty cache."""
        ids = self._runner.draft_ids
        state = EagleState(
            self._runner,
            strategy(sampling, self._rng, ids),
            ranking(sampling, ids),
            FeatureRows(self._width),
        )
        return DraftSession(list(prompt), sampling, state)

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Records tokens, and the feature rows that came."""
        session.tokens.extend(new_tokens)
        session.state.features.add(features, session.state.start or 0)

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Caches at most `rows` rows whose features are there."""
        state: EagleState = session.state
        if len(session.tokens) > self._context:
            return True
        state.sync()
        due = state.next_rows(session.tokens, rows, guess=False)
        if due is not None:
            out = self._runner.forward([due])
            state.took(due, out.g, out.states)
        return due is None or not state.waiting(session.tokens)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """A chain where nodes <= depth; else the dynamic tree under Match, and a comb where
        children are drawn.

        A draft ends before its depth at the head's context length, at `p_min` and where the time
        is over.
        """
        ready = []
        for session, budget in batch:
            session.state.sync()
            room = self._context - len(session.tokens)
            depth = min(budget.depth, budget.nodes, room)
            if depth > 0 and (session.state.waiting(session.tokens) or session.state.g is not None):
                nodes = budget.nodes if budget.nodes > budget.depth else depth
                ready.append((session, replace(budget, depth=depth, nodes=nodes)))
        self._catch_up([session for session, _ in ready])
        deadlines = [time.monotonic() + budget.time_left_s for _, budget in ready]
        drafts = [self._begin(*entry) for entry in ready]
        if drafts:
            self._draft(drafts, deadlines)
        made = {id(e[0]): d.build(self.method) for e, d in zip(ready, drafts, strict=True)}
        return [made.get(id(session)) or self._empty(session) for session, _ in batch]

    def close(self, session: DraftSession) -> None:
        """Frees the cache."""
        session.state.cache.free()
        session.state = None

    def _catch_up(self, sessions: Sequence[DraftSession]) -> None:
        """Gives every committed token its row."""
        while due := [
            (session.state, rows)
            for session in sessions
            if (rows := session.state.next_rows(session.tokens, None, guess=True)) is not None
        ]:
            out = self._runner.forward([rows for _, rows in due])
            start = 0
            for state, rows in due:
                end = start + len(rows.tokens)
                state.took(rows, out.g[start:end], out.states[start:end])
                start = end

    def _begin(self, session: DraftSession, budget: Budget) -> Draft:
        state: EagleState = session.state
        root, position = session.tokens[-1], len(session.tokens)
        if budget.nodes > budget.depth and not session.sampling.draws:
            growth = Growth(root, budget)
            return Branches(state, growth, position, budget)
        spine = Spine(root, position, comb(budget.depth, budget.nodes), state.choose, budget)
        return Trunk(state, spine)

    def _draft(self, drafts: Sequence[Draft], deadlines: Sequence[float]) -> None:
        """Level by level, all drafts in one pass."""
        g = torch.cat([draft.state.g for draft in drafts])  # type: ignore[misc]
        logits = self._runner.logits(torch.cat([draft.state.states for draft in drafts]))  # type: ignore[misc]
        running = self._grown(drafts, [1] * len(drafts), logits, g)
        until = dict(zip(map(id, drafts), deadlines, strict=True))
        while running := [draft for draft in running if time.monotonic() < until[id(draft)]]:
            batch = [draft.rows() for draft in running]
            out = self._runner.forward(batch)
            logits = self._runner.logits(out.states)
            running = self._grown(running, [len(rows.tokens) for rows in batch], logits, out.g)

    def _grown(
        self, drafts: Sequence[Draft], counts: Sequence[int], logits: np.ndarray, g: Tensor
    ) -> list[Draft]:
        """Hands each draft the logits and outputs of its rows; returns those that go on."""
        going, start = [], 0
        for draft, count in zip(drafts, counts, strict=True):
            if draft.grow(logits[start : start + count], g[start : start + count]):
                going.append(draft)
            start += count
        return going
