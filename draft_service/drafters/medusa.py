"""Drafts with Medusa heads: all levels at once, from the target's final state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from draft_service.drafters.feature_rows import FeatureRows
from draft_service.drafters.head_setup import checkpoint_of, linears_of, refused, warm_up
from draft_service.drafters.medusa_tree import RANKS, places, usual
from draft_service.drafters.rank import NOTHING, Rank, Ranked, ranking
from draft_service.drafters.setup import Setup
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.core.tree import TreeBuilder
from outrider.drafting.base import Drafter, DraftSession, FeatureSpec
from outrider.models.heads.config import MedusaConfig
from outrider.models.heads.medusa_files import load_medusa
from outrider.models.heads.medusa_runner import MedusaRunner
from outrider.models.heads.runner import medusa_runner
from outrider.models.heads.target import target_parts


@dataclass
class _State:
    features: FeatureRows
    rank: Rank


def build(path: str | None, setup: Setup) -> MedusaDrafter:
    """The drafter of the checkpoint at `path`; without one, of the target's default checkpoint.

    Raises:
        DrafterRefused: there is none, it is damaged, or it is another target's.
    """
    folder = checkpoint_of(MedusaDrafter.method, path, setup)
    with refused():
        parts = target_parts(setup.target)
        heads = load_medusa(folder, parts)
    runner = medusa_runner(heads, torch.device(setup.device), linears_of(setup))
    drafter = MedusaDrafter(runner, heads.config, parts.layers, folder)
    warm_up(drafter, heads.config.hidden_size)
    return drafter


class MedusaDrafter(Drafter):
    """Takes the final state in front of the root, whose own LM head gave the root: head k predicts
    the token k + 1 behind the root. Children are never drawn, so Match decides.

    Where that state has not come, an older one serves with the heads that reach far enough.
    """

    method = "medusa"
    recommended_depth = 3
    recommended_nodes = 12

    def __init__(
        self, runner: MedusaRunner, config: MedusaConfig, layers: int, folder: Path | None = None
    ) -> None:
        """layers: of the target, whose number names its final state among the taps."""
        self.features = FeatureSpec((layers,), window=1)
        self.model_name = "" if folder is None else folder.name
        self._runner = runner
        self._width, self._heads = config.hidden_size, config.heads
        self._accuracies = config.accuracies or usual(config.heads)

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session; it has no cache."""
        rank = ranking(sampling, self._runner.draft_ids)
        return DraftSession(list(prompt), sampling, _State(FeatureRows(self._width), rank))

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Records tokens, and the states that may still be of use."""
        session.tokens.extend(new_tokens)
        oldest = max(0, len(session.tokens) - 1 - self._heads)
        session.state.features.forget(oldest)
        session.state.features.add(features, oldest)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """The chain of best ranks where nodes <= depth, else the tree of the greedy optimiser."""
        ready: list[tuple[int, int, int]] = []
        for index, (session, budget) in enumerate(batch):
            depth = min(budget.depth, budget.nodes)
            last = session.state.features.latest(len(session.tokens) - 2)
            if depth > 0 and last is not None:
                skipped = len(session.tokens) - 2 - last
                depth = min(depth, self._heads - skipped)
                if depth > 0:
                    ready.append((index, last, skipped + depth))
        if not ready:
            return [self._empty(session) for session, _ in batch]
        rows = [batch[index][0].state.features.take(last, last + 1) for index, last, _ in ready]
        behind = [batch[index][0].tokens[last + 1] for index, last, _ in ready]
        most = max(used for _, _, used in ready)
        logits = self._runner.logits(np.concatenate(rows), behind, most)
        made = {
            index: self._proposal(*batch[index], last, logits[:used, row])
            for row, (index, last, used) in enumerate(ready)
        }
        return [made.get(i) or self._empty(session) for i, (session, _) in enumerate(batch)]

    def _proposal(
        self, session: DraftSession, budget: Budget, last: int, logits: np.ndarray
    ) -> Proposal:
        """From the logits [heads, draft vocabulary] of the state at position `last`."""
        position = len(session.tokens)
        skipped = position - 2 - last
        depth = min(budget.depth, budget.nodes, len(logits) - skipped)
        nodes = budget.nodes if budget.nodes > budget.depth else depth
        accuracies = self._accuracies[skipped : skipped + depth]
        tree = places(accuracies, depth, nodes)
        levels = 1 + max((place.level for place in tree), default=-1)
        counts = [1 + max(p.rank for p in tree if p.level == level) for level in range(levels)]
        ranked: list[Ranked] = []
        for level, count in enumerate(counts):
            row = logits[skipped + level : skipped + level + 1]
            ranked += session.state.rank(row, min(count, RANKS), position + level, budget)
            if ranked[-1] is NOTHING:
                break
        builder = TreeBuilder(session.tokens[-1])
        made: dict[int, int] = {0: 0}
        chances = [1.0]
        for index, place in enumerate(tree, 1):
            tokens = ranked[place.level].tokens if place.level < len(ranked) else []
            if place.parent not in made or place.rank >= len(tokens):
                continue
            chance = chances[made[place.parent]] * accuracies[place.level][place.rank]
            if chance >= budget.least_node:
                made[index] = builder.add(made[place.parent], tokens[place.rank])
                chances.append(chance)
        told = tuple(chances) if nodes > depth else ()
        return Proposal(builder.build(), self.method, chances=told)
