"""Drafts with a causal language model: the target's tokens, or some of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from draft_service.drafters.choose import strategy
from draft_service.drafters.comb import comb
from draft_service.drafters.growth import Growth
from draft_service.drafters.head_setup import linears_of, refused
from draft_service.drafters.model_growth import Draft, Paths, Row, State
from draft_service.drafters.rank import ranking
from draft_service.drafters.setup import Setup, check_vocabulary
from draft_service.drafters.spine import Spine
from outrider.core.round import Budget, Ids, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.specs import check_path, default_checkpoint
from outrider.models.causal_lm import CausalLM, Segment
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


def build(path: str | None, setup: Setup) -> DraftModelDrafter:
    """The drafter of the model or checkpoint at `path`; without one, of the default target's
    checkpoint, or of the cut that comes with it.

    Raises:
        DrafterRefused: there is no path for another target, the checkpoint is damaged or another
            target's, or the vocabularies differ.
    """
    if path is None:
        check_path(DraftModelDrafter.method, setup.target)
        trained = default_checkpoint(DraftModelDrafter.method, setup.target)
        path = str(trained or default_draft())
    dtype = settled_dtype(setup.dtype, setup.target, setup.device)
    folder = Path(path).expanduser()
    with refused():
        if (folder / "config.json").is_file() and is_shipped_draft(folder):
            on_cpu = parse_device(setup.device).type == "cpu"
            rounded = on_cpu and linears_of(setup) == torch.int8
            return DraftModelDrafter(*_trained(folder, setup, INT8 if rounded else dtype))
    model = load_model(path, dtype=dtype, device=setup.device, threads=setup.threads)
    check_vocabulary(setup.vocabulary, model.name, model.tokenizer_fingerprint, model.vocab_size)
    return DraftModelDrafter(model)


def _trained(folder: Path, setup: Setup, dtype: str) -> tuple[CausalLM, Ids]:
    """The model of a checkpoint with the target's own parts, and the target ids of its logits."""
    where = parse_device(setup.device)
    place = resolve(setup.target)
    target = load_pretrained(place, torch.float32)
    name, fingerprint = setup.vocabulary.name, setup.vocabulary.tokenizer_fingerprint
    draft = load_draft_model(folder, target, parts_of(target, name, fingerprint, str(place)))
    draft.model.to(where, parse_dtype(dtype, where))  # type: ignore[arg-type]
    model = CausalLM.from_model(
        draft.model,
        name=folder.name,
        tokenizer_fingerprint=fingerprint,
        quantization=INT8 if dtype == INT8 else "none",
    )
    return model, draft.ids.numpy()


class DraftModelDrafter(Drafter):
    """Runs a causal language model token by token; all sessions of a batch share each forward."""

    method = "draft_model"
    recommended_depth = 4
    recommended_nodes = 12

    def __init__(self, model: CausalLM, ids: Ids | None = None) -> None:
        """ids: the target id of each logit, ascending; None where they are the logits' places."""
        self.model = model
        self._ids = ids
        self.model_name = model.name
        self.numerics = model.numerics
        # From the operating system: a fixed seed would correlate the draft with the target's
        # samples.
        self._rng = np.random.default_rng()

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session with an empty cache."""
        choose = strategy(sampling, self._rng, self._ids)
        state = State(self.model.new_cache(), choose, ranking(sampling, self._ids))
        return DraftSession(list(prompt), sampling, state)

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """Caches at most `rows` committed tokens, the last one excluded.

        `propose` needs its logits.
        """
        if len(session.tokens) >= self.model.context_length:
            return True
        state: State = session.state
        state.sync(session.tokens)
        start, end = len(state.rows), len(session.tokens) - 1
        stop = end if rows is None else min(end, start + rows)
        if start < stop:
            tokens = session.tokens[start:stop]
            self.model.forward([Segment.chain(state.cache, tokens)])
            state.rows.extend(tokens)
        return stop == end

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """A chain where nodes <= depth; else the likeliest paths under Match, and a comb where
        children are drawn.

        The first forward takes the committed tokens that no row stands for, the others what was
        drafted last. A draft ends before its depth at the model's context length, at `p_min` and
        where the time is over.
        """
        drafts = [self._begin(session, budget) for session, budget in batch]
        until = [time.monotonic() + budget.time_left_s for _, budget in batch]
        running = [(d, t) for d, t in zip(drafts, until, strict=True) if d is not None]
        while running:
            going = self._step([draft for draft, _ in running])
            now = time.monotonic()
            running = [e for e, on in zip(running, going, strict=True) if on and now < e[1]]
        return [
            self._empty(session) if draft is None else draft.build(self.method)
            for draft, (session, _) in zip(drafts, batch, strict=True)
        ]

    def close(self, session: DraftSession) -> None:
        """Frees the cache."""
        session.state.cache.free()
        session.state = None

    def _begin(self, session: DraftSession, budget: Budget) -> Draft | None:
        state: State = session.state
        tokens = session.tokens
        depth = min(budget.depth, budget.nodes, self.model.context_length - len(tokens))
        if depth <= 0:
            return None
        state.sync(tokens)
        if budget.nodes > budget.depth and not session.sampling.draws:
            growth = Growth(tokens[-1], replace(budget, depth=depth))
            return Paths(state, growth, tokens, budget)
        shape = comb(budget.depth, budget.nodes)[:depth]
        return Row(state, Spine(tokens[-1], len(tokens), shape, state.choose, budget), tokens)

    def _step(self, drafts: Sequence[Draft]) -> list[bool]:
        """One packed forward and one level of each draft; which of them go on."""
        segments = [draft.segment() for draft in drafts]
        hidden = self.model.forward(segments)
        ends = np.cumsum([len(segment.tokens) for segment in segments])
        due = [range(end - draft.due, end) for draft, end in zip(drafts, ends, strict=True)]
        rows = [row for part in due for row in part]
        logits = self.model.logits(hidden.states[rows]).cpu().numpy()
        cuts = np.cumsum([draft.due for draft in drafts])[:-1]
        parts = np.split(logits, cuts)
        return [draft.grow(part) for draft, part in zip(drafts, parts, strict=True)]
