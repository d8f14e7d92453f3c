"""Drafts with a causal language model that shares the target's vocabulary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from draft_service.drafters.choose import Choose, strategy
from draft_service.drafters.comb import comb
from draft_service.drafters.head_setup import refused
from draft_service.drafters.setup import Setup, check_vocabulary
from outrider.core.round import Budget, Ids, Proposal, SamplingParams, TruncatedDistribution
from outrider.core.tree import TreeBuilder
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.specs import check_path, default_checkpoint
from outrider.models.cache import KVCache
from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.heads.checkpoint import CONFIG
from outrider.models.heads.draft_model_files import is_shipped_draft, load_draft_model
from outrider.models.heads.target import parts_of
from outrider.models.hub import default_draft, resolve
from outrider.models.loading import (
    INT8,
    load_model,
    load_pretrained,
    parse_device,
    parse_dtype,
    settled_dtype,
)


@dataclass
class _State:
    """The model's cache of a session.

    rows: token of each cached row: a prefix of the committed tokens, then what was drafted behind
        it. `sync`
        drops what was not accepted.
    """

    cache: KVCache
    choose: Choose
    rows: list[int] = field(default_factory=list)

    def sync(self, tokens: Sequence[int]) -> None:
        """Keeps the rows that `tokens` begin with, the last token apart.

        The next pass needs its logits.
        """
        limit = min(len(self.rows), len(tokens) - 1)
        common = next((i for i in range(limit) if self.rows[i] != tokens[i]), limit)
        if common < self.cache.length:
            self.cache.keep(common, ())
        del self.rows[common:]


@dataclass
class _Draft:
    """A proposal in the making."""

    session: DraftSession
    state: _State
    budget: Budget
    shape: list[int]
    deadline: float
    tree: TreeBuilder
    pending: list[int]
    drawn_from: dict[int, TruncatedDistribution] = field(default_factory=dict)
    node: int = 0
    level: int = 0

    def grow(self, logits: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
        """Adds the children of the spine's last node from its logits [V].

        Whether the spine goes on.
        """
        position = len(self.session.tokens) + self.level
        children = self.state.choose(logits, self.shape[self.level], position, self.budget)
        if not children.tokens:
            return False
        if children.drawn_from is not None:
            self.drawn_from[self.node] = children.drawn_from
        nodes = [self.tree.add(self.node, token) for token in children.tokens]
        self.node = nodes[0]
        self.pending = [children.tokens[0]]
        self.level += 1
        return self.level < len(self.shape) and time.monotonic() < self.deadline


def build(path: str | None, setup: Setup) -> DraftModelDrafter:
    """The drafter of the model at `path`: a whole model, or trained layers of the target.

    Without a path, the target's default checkpoint, or else the cut that comes with the default
    target.

    Raises:
        DrafterRefused: there is no path for another target, the vocabularies differ, or the
            checkpoint is damaged or another target's.
    """
    shipped = _shipped(path, setup)
    if shipped is not None:
        return _trained(shipped, setup)
    if path is None:
        check_path(DraftModelDrafter.method, setup.target)
    spec = str(default_draft()) if path is None else path
    dtype = settled_dtype(setup.dtype, setup.target, setup.device)
    model = load_model(spec, dtype=dtype, device=setup.device, threads=setup.threads)
    check_vocabulary(setup.vocabulary, model.name, model.tokenizer_fingerprint, model.vocab_size)
    return DraftModelDrafter(model)


def _shipped(path: str | None, setup: Setup) -> Path | None:
    """The folder of a checkpoint in the shipped form, if it is one."""
    if path is None:
        return default_checkpoint(DraftModelDrafter.method, setup.target)
    folder = Path(path).expanduser()
    with refused():
        return folder if (folder / CONFIG).is_file() and is_shipped_draft(folder) else None


def _trained(folder: Path, setup: Setup) -> DraftModelDrafter:
    """Trained layers between the target's embedding and rows of its head."""
    device = parse_device(setup.device)
    dtype = settled_dtype(setup.dtype, setup.target, setup.device)
    if setup.threads is not None:
        torch.set_num_threads(setup.threads)
    place = resolve(setup.target)
    target = load_pretrained(place, torch.float32)
    fingerprint = setup.vocabulary.tokenizer_fingerprint
    with refused():
        parts = parts_of(target, setup.vocabulary.name, fingerprint, str(place))
        loaded = load_draft_model(folder, target, parts)
    model = nn.Module.to(loaded.model, device, parse_dtype(dtype, device))
    lm = CausalLM.from_model(
        model,
        name=folder.name,
        tokenizer_fingerprint=fingerprint,
        quantization=INT8 if dtype == INT8 else "none",
    )
    return DraftModelDrafter(lm, loaded.ids.numpy())


class DraftModelDrafter(Drafter):
    """Runs a causal language model token by token; all sessions of a batch share each forward."""

    method = "draft_model"
    recommended_depth = 4

    def __init__(self, model: CausalLM, vocabulary: Ids | None = None) -> None:
        """vocabulary: target id of each logit ascending; None where they are all of them."""
        self.model = model
        self._vocabulary = vocabulary
        self.model_name = model.name
        self.numerics = model.numerics
        # From the operating system: a fixed seed would correlate the draft with the target's
        # samples.
        self._rng = np.random.default_rng()

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with an empty cache."""
        state = _State(self.model.new_cache(), strategy(sampling, self._rng, self._vocabulary))
        return DraftSession(list(prompt), sampling, state)

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Caches at most `rows` committed tokens, the last one excluded.

        `propose` needs its logits.
        """
        if len(session.tokens) >= self.model.context_length:
            return True
        state: _State = session.state
        state.sync(session.tokens)
        start, end = len(state.rows), len(session.tokens) - 1
        stop = end if rows is None else min(end, start + rows)
        if start < stop:
            tokens = session.tokens[start:stop]
            self.model.forward([Segment.chain(state.cache, tokens)])
            state.rows.extend(tokens)
        return stop == end

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """A chain, or a comb where the budget has more nodes than depth.

        The first forward takes the committed tokens that no row stands for, the others one token a
        session. A draft ends before its depth at the model's context length, at `p_min` and where
        the time is over.
        """
        drafts = [self._begin(session, budget) for session, budget in batch]
        running = [draft for draft in drafts if draft.shape]
        while running:
            running = self._step(running)
        return [Proposal(draft.tree.build(), self.method, draft.drawn_from) for draft in drafts]

    def close(self, session: DraftSession) -> None:
        """Frees the cache."""
        session.state.cache.free()
        session.state = None

    def _begin(self, session: DraftSession, budget: Budget) -> _Draft:
        state: _State = session.state
        room = self.model.context_length - len(session.tokens)
        shape = comb(budget.depth, budget.nodes)[: max(0, room)]
        missing: list[int] = []
        if shape:
            state.sync(session.tokens)
            missing = session.tokens[len(state.rows) :]
        deadline = time.monotonic() + budget.time_left_s
        return _Draft(
            session, state, budget, shape, deadline, TreeBuilder(session.tokens[-1]), missing
        )

    def _step(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        """One packed forward and one level of each draft; returns those that go on."""
        hidden = self.model.forward(
            [Segment.chain(draft.state.cache, draft.pending) for draft in drafts]
        )
        last = np.cumsum([len(draft.pending) for draft in drafts]) - 1
        logits = self.model.logits(hidden.states[last.tolist()]).cpu().numpy()
        for draft in drafts:
            draft.state.rows.extend(draft.pending)
        return [draft for draft, row in zip(drafts, logits, strict=True) if draft.grow(row)]
