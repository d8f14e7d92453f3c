"""One step: the rows of many sessions through one forward, and the evidence of those that are due
for it.

Runs on the engine's torch thread and touches nothing but the caches of the sessions in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from outrider.core.round import Features, Ids, NodeEvidence
from outrider.core.tree import TokenTree
from outrider.models.causal_lm import CausalLM, Segment
from target_service.evidence import gather, walked
from target_service.features import Tapped
from target_service.session import Session


@dataclass(frozen=True)
class Work:
    """A session's rows in a step. Evidence is due for `tree`, its last rows; for none in
    mid-prefill."""

    session: Session
    tokens: Sequence[int]
    parents: Sequence[int]
    tree: TokenTree | None
    supports: Mapping[int, Ids] = field(default_factory=dict)
    tree_exact: bool = True


@dataclass(frozen=True)
class Outcome:
    """What a step found for one Work; nothing but prompt_features in mid-prefill.

    features: rows of the walked nodes; prompt_features: rows of the prompt in front of the root.
    """

    samples: tuple[int, ...] = ()
    nodes: Mapping[int, NodeEvidence] = field(default_factory=dict)
    walked: tuple[int, ...] = ()
    prompt_features: Features | None = None
    features: Features | None = None


@dataclass(frozen=True)
class StepResult:
    """Outcomes in the order of the works, and the step's time."""

    outcomes: Sequence[Outcome]
    rows: int
    started: float
    forward_us: int


def run(model: CausalLM, works: Sequence[Work]) -> StepResult:
    """Runs one step; every session's cache grows by the rows of its work, or none does if it
    raises."""
    started = time.perf_counter()
    taps = sorted(
        {tap for work in works if work.session.features for tap in work.session.features.taps}
    )
    segments = [Segment(w.session.cache, w.tokens, w.parents, w.tree_exact) for w in works]
    with torch.inference_mode(), ExitStack() as undo:
        for work in works:
            work.session.compact()
        starts = [work.session.cache.length for work in works]
        for work, start in zip(works, starts, strict=True):
            undo.callback(work.session.cache.keep, start)
        hidden = model.forward(segments, taps)
        ends = torch.tensor([len(work.tokens) for work in works]).cumsum(0).tolist()
        due = [row for work, end in zip(works, ends, strict=True) for row in _due(work, end)]
        logits = (
            model.logits(hidden.states[due])
            if due
            else hidden.states.new_empty((0, model.vocab_size))
        )
        outcomes: list[Outcome] = []
        tapped = Tapped(hidden.taps, taps)
        used = 0
        for work, start, end in zip(works, starts, ends, strict=True):
            rows = len(_due(work, end))
            first = end - len(work.tokens)
            outcomes.append(_outcome(work, start, first, logits[used : used + rows], tapped))
            used += rows
        undo.pop_all()
    forward_us = int((time.perf_counter() - started) * 1e6)
    return StepResult(outcomes, ends[-1], started, forward_us)


def _due(work: Work, end: int) -> range:
    """Packed row indices whose logits are needed."""
    return range(end - len(work.tree), end) if work.tree is not None else range(0)


def _outcome(work: Work, start: int, first: int, logits: torch.Tensor, tapped: Tapped) -> Outcome:
    """start: rows of the session before this step; first: the step's row where its own begin."""
    session = work.session
    known = max(0, session.featured_rows - start)  # rows that are computed a second time
    if work.tree is None:
        if session.round > 0:
            return Outcome()
        rows = range(known, len(work.tokens))
        return Outcome(prompt_features=tapped.part(session, first, start + known, rows))
    samples, nodes = gather(session, work.tree, logits, work.supports)
    kept = walked(work.tree, samples, work.supports)
    in_front = len(work.tokens) - len(work.tree)  # rows of the prompt in the same chunk as the root
    front = range(known, in_front)
    prompt_features = tapped.part(session, first, start + known, front)
    rows_kept = [in_front + node for node in kept]
    features = tapped.part(session, first, start + in_front, rows_kept)
    return Outcome(samples, nodes, kept, prompt_features, features)
