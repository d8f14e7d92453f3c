"""What the sessions of this process have measured together: costs by target and drafter, acceptance
by method and class. A new session starts from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.company import ALONE, Company, Times, search
from orchestrator.contention import KEPT, Drafting
from orchestrator.costs import Line, Mean, VerifyCost
from orchestrator.survival import Counts, survival
from outrider.core.round import Load

SHARED_DECAY = 0.998  # of a (method, class)'s counts, a trial: some five hundred of them count
MOST_KEYS = 1024
STEADY = 0.01  # of a sample of the gap: what delays one step now and then delays rounds as well
PATIENCE = 8.0  # proposals are waited for so many times as long as 95 of 100 of them took
LEAST_PATIENCE_S = 0.25


@dataclass
class TargetCosts:
    """What all sessions of this process on one target have measured."""

    verify: VerifyCost = field(default_factory=VerifyCost)
    wire: Mean = field(default_factory=Mean)
    gap: Mean = field(default_factory=lambda: Mean(STEADY))
    load: Load = field(default_factory=Load)
    drafting: Drafting = field(default_factory=Drafting)
    full: Mean = field(default_factory=Mean)  # share of the steps that left somebody out
    batch: int = 1 << 30  # most sessions in a step
    _last: tuple[int, int, float] = (0, 0, 0.0)  # rows, microseconds, end of a step
    _steps: deque[tuple[int, int, float]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def joined(self, ours: int) -> None:
        """A session is about to open, with which this process has `ours` on the target: more
        than the target may have told so far."""
        self.load = replace(self.load, sessions=max(self.load.sessions, ours))

    def stepped(self, load: Load, forward_us: int, ended_us: float) -> None:
        """A step with this load took so long, and ended at a time; told by every session in it.

        It is learnt from, once, when all drafts are known that were made meanwhile.
        """
        rows, took_us, ended = self._last
        again = (rows, took_us) == (load.rows, forward_us) and ended_us - ended < took_us / 2
        if load.rows and forward_us > 0 and not again:
            self._last = load.rows, forward_us, ended_us
            self._steps.append(self._last)
        while self._steps and self.drafting.known(self._steps[0][2], ended_us):
            rows, took_us, ended = self._steps.popleft()
            self.verify.learn(rows, took_us, self.drafting.within(ended - took_us, ended))
        self.load = load
        self.full.add(float(load.left_out > 0))


@dataclass
class DraftCosts:
    """The same of one drafter. counts: trials of all sessions; company: what they do together, and
    search: for what it is to be next, under way among so many of them."""

    line: Line = field(default_factory=Line)
    wire: Mean = field(default_factory=Mean)
    queue: Mean = field(default_factory=Mean)
    waited: Mean = field(default_factory=Mean)
    opening: Mean = field(default_factory=Mean)  # what a session's prefill takes
    counts: Counts = field(default_factory=Counts)
    fill: Mean = field(default_factory=Mean)
    company: Company = ALONE
    search: Iterator[Company | None] | None = None
    searched_sessions: int = 0
    measured_at: float = 0.0
    measured_sessions: int = 0
    rests_until: float = 0.0  # seconds: no shadow draft before, but where one is called for

    def patience_s(self, limit_s: float) -> float:
        """How long a proposal is waited for, at most `limit_s`."""
        if self.waited.count < 20:
            return limit_s
        return min(limit_s, max(LEAST_PATIENCE_S, PATIENCE * self.waited.p95 / 1e6))

    def times(self, target: TargetCosts, fill: float) -> Times:
        """What a session's rounds take beside the step; `fill`: of its own drafts."""
        fixed, step = self.line.fit()
        queue = self.queue.value
        if target.load.sessions <= 1:  # who is alone waits no longer for what others had drafted
            queue = min(queue, self.queue.last)
        return Times(
            fixed + self.wire.value,
            step if self.line.known else None,
            target.wire.value,
            max(0.0, target.gap.value),
            fill,
            queue,
            target.verify.drag * target.drafting.own,
        )

    def meet(self, target: TargetCosts, times: Times, most: int) -> Company:
        """Whom a session meets in a step: found for all sessions of this drafter, one depth a call.

        Args:
            times: of the session's rounds. most: its greatest depth.
        """
        sessions = target.load.sessions
        if sessions <= 1:
            return ALONE
        if self.search is None or sessions != self.searched_sessions:
            self.searched_sessions = sessions
            alike = replace(times, fill=self.fill.value if self.fill.count else 1.0)
            curve = survival(self.counts.rates(most))
            self.search = search(sessions, target.batch, curve, alike, target.verify)
        found = next(self.search)
        if found is not None:
            self.company, self.search = found, None
        if target.full.value > 0.5 and not self.company.full:
            return replace(self.company, full=True)  # whatever the model says
        return self.company

    def as_fields(self) -> dict[str, float]:
        """Its latency profile, microseconds; empty where nothing was measured."""
        if not self.line.known:
            return {}
        fixed, step = self.line.fit()
        return {
            "draft_fixed_us": fixed,
            "draft_step_us": step,
            "draft_wire_us": self.wire.value,
        }

    def prime(self, fields: Mapping[str, float]) -> None:
        """Takes over what others measured, where nothing was here."""
        if self.line.known or not {"draft_fixed_us", "draft_step_us"} <= fields.keys():
            return
        for depth in (1, 4):
            self.line.add(depth, fields["draft_fixed_us"] + depth * fields["draft_step_us"])
        self.wire.add(fields.get("draft_wire_us", 0.0))


class Knowledge:
    """The measures of one orchestrator, by address, method and class."""

    decay = SHARED_DECAY

    def __init__(self) -> None:
        self._targets: dict[str, TargetCosts] = {}
        self._drafters: dict[str, DraftCosts] = {}
        self._counts: dict[tuple[str, str], Counts] = {}

    def target(
        self, address: str, profile: Sequence[tuple[int, int, int]], batch: int
    ) -> TargetCosts:
        """The costs of one target; `profile` and `batch` (0: not told) are what it says of
        itself."""
        if address not in self._targets:
            self._targets[address] = TargetCosts(VerifyCost(profile))
        costs = self._targets[address]
        costs.batch = batch or costs.batch
        return costs

    def drafter(self, method: str) -> DraftCosts:
        """The costs of one method."""
        return self._drafters.setdefault(method, DraftCosts())

    def counts(self, method: str, class_: str) -> Counts:
        """The trials of one method and class; of classes beyond `MOST_KEYS` none are kept."""
        key = (method, class_)
        if key not in self._counts and len(self._counts) >= MOST_KEYS:
            return Counts()
        return self._counts.setdefault(key, Counts())

    def targets(self) -> list[TargetCosts]:
        """The costs of the targets that sessions were steered on."""
        return list(self._targets.values())

    def profiles(self) -> dict[str, DraftCosts]:
        """The drafters' costs by method."""
        return self._drafters
