"""A target with a known cost table, drafters of known acceptance, many sessions: discrete events.

Steps are continuous batching as the target does it: whatever waits goes into the next step, free
runs take part in every step, a step takes v(rows). Drafts take a fixed time and one step a depth
and never wait for each other; where they share the target's cores they are made one after the
other, and a step takes so much longer as drafts are made meanwhile. Throughput counts the tokens
that a round yields in the mean, so that luck does not blur the comparison; controllers see the
drawn ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from orchestrator.adaptive import AdaptiveDepth
from orchestrator.costs import VerifyCost
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.peers import RunTokens
from orchestrator.state import Bounds
from orchestrator.survival import Survival
from outrider.core.round import Budget, Evidence, Load, Proposal
from outrider.core.tree import TokenTree

Cost = Callable[[float], float]
FOREVER = 1 << 30
MOST = 8


@dataclass
class World:
    """acceptance: chance that a drafted token is kept, as the others before it were, by depth.

    draft_us: of one depth; wire_us: of each of the two services, there and back; verify: v(rows) in
    microseconds; batch: most sessions in a step. shared: the time by which a microsecond of
    drafting lengthens a step that is under way.
    """

    acceptance: Sequence[float]
    draft_us: float
    wire_us: float
    verify: Cost
    batch: int = 1 << 30
    draft_wire_us: float | None = None
    shared: float = 0.0

    def survival(self, depth: int) -> float:
        return float(np.prod(self.acceptance[:depth]))

    def tokens(self, depth: int) -> float:
        return 1.0 + sum(self.survival(i) for i in range(1, depth + 1))

    def way(self) -> float:
        return self.wire_us if self.draft_wire_us is None else self.draft_wire_us

    def draft_time(self, depth: int) -> float:
        return self.way() + depth * self.draft_us


class Fixed:
    """K = depth."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def calls(self, remaining: int) -> bool:
        return True

    def choose(self, remaining: int) -> Budget | None:
        return Budget(self.depth, self.depth) if self.depth else None

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@dataclass
class Stream:
    """One session: what it waits for, and when it came."""

    controller: Any
    asked: int = 0
    ready_at: float = 0.0
    running: bool = False
    turns: int = 0
    shadow: tuple[float, Budget] | None = None
    agreement: list[int] = field(default_factory=list)


class Simulation:
    """Runs `controllers`, one a stream, against a world that may change between two runs."""

    def __init__(self, world: World, controllers: Sequence[Any], seed: int = 0) -> None:
        self.world = world
        self.streams: list[Stream] = []
        self.now = 0.0
        self.tokens = 0.0
        self.chosen: list[int] = []
        self._rng = np.random.default_rng(seed)
        self._drafts: list[tuple[float, float]] = []  # when they are made, where that matters
        self._told: list[tuple[float, int, Any, Budget, Proposal, float]] = []
        self.clock = 0.0
        self.join(controllers)

    def run(self, for_us: float) -> float:
        """Tokens a second over the next `for_us` microseconds."""
        began, before = self.now, self.tokens
        while self.now < began + for_us:
            self._step()
        return (self.tokens - before) / (self.now - began) * 1e6

    def join(self, controllers: Sequence[Any]) -> None:
        """Begins a stream with each."""
        for controller in controllers:
            self.streams.append(Stream(controller, ready_at=self.now))
            self._next_round(self.streams[-1])

    def keep(self, count: int) -> None:
        """Ends all streams but `count`."""
        del self.streams[count:]

    def _step(self) -> None:
        waiting = [s for s in self.streams if s.ready_at <= self.now]
        if not waiting:
            self.now = min(s.ready_at for s in self.streams)
            return
        waiting.sort(key=lambda s: s.turns)
        taken, left_out = waiting[: self.world.batch], waiting[self.world.batch :]
        rows = sum(1 if s.running else 1 + s.asked for s in taken)
        began = self.now
        forward = self._forward(rows)
        self.now += forward
        self._tell()
        load = Load(len(self.streams), rows, 0, len(taken), len(left_out))
        for stream in taken:
            stream.turns += 1
            (self._ran if stream.running else self._verified)(stream, load, began, forward)

    def _forward(self, rows: int) -> float:
        """A step that begins now."""
        alone = forward = self.world.verify(rows)
        if self.world.shared:
            self._drafts = [(start, end) for start, end in self._drafts if end > self.now]
            for _ in range(3):  # what lengthens it lets it meet more drafts
                until = self.now + forward
                met = sum(max(0.0, min(e, until) - max(s, self.now)) for s, e in self._drafts)
                forward = alone + self.world.shared * met
        return forward

    def _draft(self, stream: Stream, budget: Budget, took_us: float, at: float) -> float:
        """When a draft that is asked for at `at` is there."""
        queue = 0.0
        making = budget.depth * self.world.draft_us
        if self.world.shared:
            asked = at + max(0.0, took_us - making) / 2
            begins = max([asked, *(end for _, end in self._drafts)])
            queue = begins - asked
            self._drafts.append((begins, begins + making))
        proposal = replace(self._proposal(budget.depth), queue_us=int(queue))
        there = at + took_us + queue
        told = (there, len(self._told), stream.controller, budget, proposal, (there - at) / 1e6)
        heapq.heappush(self._told, told)
        return there

    def _tell(self) -> None:
        """Controllers hear of the drafts that have come, at the time at which they came."""
        while self._told and self._told[0][0] <= self.now:
            self.clock, _, controller, *what = heapq.heappop(self._told)
            controller.drafted(*what)
        self.clock = self.now

    def _ran(self, stream: Stream, load: Load, began: float, forward: float) -> None:
        self.tokens += 1.0
        waited = (self.now - stream.ready_at) / 1e6
        stream.ready_at = self.now
        stream.controller.ran(RunTokens((0,), 0, int(forward), load), waited)
        self._shadow(stream)
        if stream.controller.choose(FOREVER) is not None:
            stream.shadow = None
            self.tokens += self.world.wire_us / self.world.verify(load.rows)  # goes on until halted
            self.now_later(stream)

    def now_later(self, stream: Stream) -> None:
        """Halts a free run: the round begins a wire's time later."""
        self._next_round(stream, self.world.wire_us)

    def _shadow(self, stream: Stream) -> None:
        if stream.shadow is None:
            budget = stream.controller.shadow(FOREVER)
            if budget is not None:
                took = self.world.draft_time(budget.depth)
                stream.shadow = (self._draft(stream, budget, took, self.now), budget)
                stream.agreement = [self._walk(budget.depth), 0]
            return
        stream.agreement[1] += 1
        due, budget = stream.shadow
        kept, compared = stream.agreement
        if self.now >= due and (compared > kept or compared >= budget.depth):
            stream.shadow = None
            proposal = self._proposal(budget.depth)
            stream.controller.shadowed(budget, proposal, budget.depth, kept)

    def _verified(self, stream: Stream, load: Load, began: float, forward: float) -> None:
        depth, kept = stream.asked, self._walk(stream.asked)
        self.tokens += self.world.tokens(depth)
        controller = stream.controller
        queue = began - stream.ready_at
        evidence = Evidence((), queue_us=int(queue), forward_us=int(forward), load=load)
        wire = self.world.wire_us
        controller.verified(1 + depth, 256, evidence, (queue + forward + wire) / 1e6)
        tree = TokenTree.chain(0, [0] * depth)
        controller.decided(Budget(depth, depth), "m", tree, range(1, kept + 1))
        self._next_round(stream, wire)

    def _next_round(self, stream: Stream, later_us: float = 0.0) -> None:
        budget = stream.controller.choose(FOREVER)
        stream.running = budget is None
        stream.asked = 0 if budget is None else budget.depth
        self.chosen.append(stream.asked)
        stream.ready_at = self.now + later_us
        if budget is not None:
            # Varying times, or streams that began together would stay in step for ever.
            taken = self.world.draft_time(budget.depth) * self._rng.uniform(0.7, 1.3)
            stream.ready_at = self._draft(stream, budget, taken, stream.ready_at)

    def _walk(self, depth: int) -> int:
        for i in range(depth):
            if self._rng.random() >= self.world.acceptance[i]:
                return i
        return depth

    def _proposal(self, depth: int) -> Proposal:
        tree = TokenTree.chain(0, [0] * depth)
        return Proposal(tree, "m", draft_us=int(depth * self.world.draft_us))


class Crew(Protocol):
    """A simulation, and where its further controllers come from."""

    simulation: Simulation

    def sessions(self, count: int) -> Sequence[Any]:
        """So many new controllers."""


class FixedCrew:
    """Sessions of K = depth."""

    def __init__(self, world: World, depth: int) -> None:
        self.depth = depth
        self.simulation = Simulation(world, ())

    def sessions(self, count: int) -> list[Fixed]:
        return [Fixed(self.depth) for _ in range(count)]


class AdaptiveCrew:
    """Sessions of one process, which know the target's start-up profile and nothing else."""

    def __init__(self, world: World, seed: int = 0) -> None:
        sizes = (1, 2, 4, 8, 16, 32, 64)
        profile = [(rows, 512, int(world.verify(rows))) for rows in sizes]
        self.target = TargetCosts(VerifyCost(profile), batch=world.batch)
        self.drafter = DraftCosts()
        self.simulation = Simulation(world, (), seed)

    def sessions(self, count: int) -> list[AdaptiveDepth]:
        return [
            AdaptiveDepth(
                Bounds(0, MOST, MOST, 4),
                Budget(MOST, MOST),
                Survival(self.drafter.counts, MOST),
                self.target,
                self.drafter,
                clock=lambda: self.simulation.clock / 1e6,
            )
            for _ in range(count)
        ]


def adaptive(world: World, streams: int, seed: int = 0) -> Simulation:
    """Adaptive sessions that begin together."""
    crew = AdaptiveCrew(world, seed)
    crew.simulation.join(crew.sessions(streams))
    return crew.simulation
