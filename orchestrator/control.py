"""Gives each request what chooses its K, and what hears of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.adaptive import AdaptiveDepth
from orchestrator.controller import FixedDepth
from orchestrator.costs import profile_of
from orchestrator.knowledge import Knowledge
from orchestrator.metrics import Metrics
from orchestrator.peers import Controller, Drafter, Witness
from orchestrator.requests import Method, Request
from orchestrator.settings import OrchestratorSettings
from orchestrator.shadow import Shadow
from orchestrator.state import Bounds, Choice
from orchestrator.survival import Survival
from outrider.core.round import Budget
from outrider.v1 import target_pb2

Try = Callable[[str, str, int, int], None]


@dataclass(frozen=True)
class Control:
    """One request's controller, its witnesses, and its shadow drafts where it has any."""

    controller: Controller
    witnesses: Sequence[Witness]
    shadow: Shadow | None = None


def control(
    request: Request,
    drafter: Drafter | None,
    target: tuple[str, target_pb2.TargetInfo],
    method: Method,
    knowledge: Knowledge,
    settings: OrchestratorSettings,
    metrics: Metrics | None = None,
    tried: Try | None = None,
    ours: int = 1,
) -> Control:
    """A fixed K where the request says so or has no drafter, else one that follows the rounds.

    Args:
        target: address of the replica, and what it says of itself.
        method: the drafter, as it describes itself.
        ours: sessions of this process on the target, this one included.
        tried: hears of every round and shadow draft as (method, class, asked, kept).
    """
    wanted = request.speculation
    heard: tuple[Witness, ...] = () if metrics is None else (metrics,)
    if drafter is None or wanted.least >= wanted.depth:
        fixed = FixedDepth(
            wanted.depth, wanted.nodes, settings.support, settings.draft_deadline_s, wanted.p_min
        )
        return Control(fixed, heard)
    address, info = target
    name, class_ = wanted.method, request.class_
    counts = knowledge.counts(name, class_)

    def shared(asked: int, kept: int) -> None:
        counts.add(asked, kept, knowledge.decay)
        if tried is not None:
            tried(name, class_, asked, kept)

    def told(choice: Choice) -> None:
        if metrics is not None:
            metrics.chose(choice)

    costs = knowledge.target(address, profile_of(info.profile), info.max_batch)
    costs.joined(ours)
    adaptive = AdaptiveDepth(
        Bounds(
            wanted.least,
            wanted.depth,
            wanted.nodes,
            min(method.recommended_depth, wanted.depth),
            method.whole,
        ),
        Budget(
            wanted.depth, wanted.nodes, settings.support, settings.draft_deadline_s, wanted.p_min
        ),
        Survival(counts, wanted.depth),
        costs,
        knowledge.drafter(name),
        shared=shared,
        told=told,
        shadows=not (request.sampling.draws or method.whole),
    )
    drafter.on_open = adaptive.opened
    return Control(adaptive, (adaptive, *heard), Shadow(drafter, adaptive))
