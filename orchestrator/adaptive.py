"""A session's controller: measures go in as rounds go by, a budget comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.controller import choose
from orchestrator.costs import Mean
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.peers import RunTokens
from orchestrator.probes import Probes
from orchestrator.state import Bounds, Choice, Reason, State
from orchestrator.survival import Siblings, Survival
from outrider.core.round import Budget, Evidence, Proposal
from outrider.core.tree import TokenTree

AGING = 0.01  # share of its weight that a token of a free run takes from what rounds told
LEAST_AGING = 0.0025
SAVED = 0.005  # share of the tokens of free runs that may be spent on rounds to learn from
MOST_SAVED = 4.0
PROBES = 4  # rounds in a row, where trees are whole: the first ones only find what to draft
COMPANY_DECAY = 0.99


class AdaptiveDepth:
    """Chooses K for one session; implements the loop's Controller and its Witness.

    Args:
        budget: m, deadline and p_min of every proposal.
        shared: hears of every round and shadow draft, as (asked, kept), for the shared prior.
        told: hears of every choice.
        shadows: whether agreement with the text of a free run is acceptance: not where children
            are drawn (a draw that differs from the target's may still be accepted), nor where
            the drafter needs what only rounds bring. Without it, rare rounds are spent on learning.
    """

    def __init__(
        self,
        bounds: Bounds,
        budget: Budget,
        survival: Survival,
        target: TargetCosts,
        drafter: DraftCosts,
        *,
        shared: Callable[[int, int], None] = lambda asked, kept: None,
        told: Callable[[Choice], None] = lambda choice: None,
        shadows: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._bounds = bounds
        self._budget = budget
        self._survival = survival
        self._target = target
        self._drafter = drafter
        self._shared = shared
        self._told = told
        self._shadows = shadows
        self._clock = clock
        self._fill = Mean()
        self._siblings = Siblings()
        self._running = False
        self._leaving: Choice | None = None
        self._allowance = 0.0
        self._probes = PROBES if bounds.whole else 1
        self._probing = 0  # rounds that are still to come of those only to learn from
        self._behind = 0  # tokens of the run that the drafter has not seen
        self._late = False
        self._asked = False  # whether the loop has asked since the last tokens
        self._aging = AGING
        self._shadowing = Probes(target, drafter, clock)
        self._gain = 1.0  # of rounds, as the last choice saw it
        self._asks = False  # a round seems to pay; a shadow draft should say so first
        self._confirmed = False

    # The loop's Controller

    def calls(self, remaining: int) -> bool:
        """Whether the drafter, which has no session yet, is to open one: for rounds that seem to
        pay, or for a shadow draft."""
        self._asked = True
        if self._shadowing.calm:
            return False
        choice = choose(self.state(), self._bounds, remaining)
        self._gain = choice.gain
        if choice.depth or (self._shadows and self._shadowing.due):
            if not choice.depth:
                self._shadowing.call(self._probe_depth(remaining), choice.gain)
            self._target.drafting.ask(id(self), 1e6 * self._clock())
            return True
        self._shadowing.rest(choice.gain)
        self._told(choice)
        return False

    def choose(self, remaining: int) -> Budget | None:
        """The next round's budget; None for K=0."""
        self._asked = True
        bounds = self._bounds
        if self._leaving is not None or self._probing:  # the run was halted for this round
            bounds = replace(bounds, least=max(1, bounds.least))
        choice = choose(self.state(), bounds, remaining)
        self._gain = choice.gain
        if self._leaving is not None and choice.depth:
            choice = replace(choice, reason=self._leaving.reason)
        elif self._probing and choice.depth:
            choice = replace(choice, reason=Reason.PROBE)
        elif self._running and choice.depth:
            if self._shadows and not self._confirmed:
                self._asks = True
                choice = replace(choice, depth=0, nodes=0, reason=Reason.HELD)
            else:
                self._leaving = choice
                self._probing = self._probes if choice.reason is Reason.PROBE else 0
        elif self._running and self._confirmed:  # the shadow draft said no: ask less often
            self._confirmed, self._aging = False, max(LEAST_AGING, self._aging / 2)
        self._told(choice)
        return self._for(choice)

    def state(self) -> State:
        """What is known now."""
        target, drafter = self._target, self._drafter
        times = drafter.times(target, self._fill.value if self._fill.count else 1.0)
        behind = (times.draft_step_us or 0.0) if self._behind else 0.0
        return State(
            curve=self._survival.curve(),
            verify=target.verify,
            times=times,
            company=drafter.meet(target, times, self._bounds.most),
            sibling=self._siblings.rate,
            running=self._running,
            change_us=target.wire.value + target.verify(1.0) + behind,
            allowance=self._allowance,
            probes=self._probes,
        )

    def opened(self, prefill_us: int) -> None:
        """The drafter has a session now."""
        now = 1e6 * self._clock()
        self._drafter.opening.add(prefill_us)
        self._target.drafting.answered(id(self))
        self._target.drafting.add(now - prefill_us, now)

    # The loop's Witness

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        """A proposal was waited for; None: it came too late."""
        drafter, waited = self._drafter, waited_s * 1e6
        self._target.drafting.answered(id(self))
        self._behind = 0
        self._late = proposal is None
        drafter.measured_at = self._clock()
        drafter.measured_sessions = self._target.load.sessions
        if proposal is None:
            drafter.wire.add(waited)
            return
        drafter.waited.add(waited)
        drafter.line.add(proposal.tree.depth, proposal.draft_us)
        drafter.queue.add(proposal.queue_us)
        way = max(0.0, waited - proposal.draft_us - proposal.queue_us)
        drafter.wire.add(way)
        busy, now = way + proposal.draft_us + proposal.prefill_us, 1e6 * self._clock()
        self._target.drafting.add(now - busy, now)
        self._fill.add(proposal.tree.drafted / budget.nodes)
        drafter.fill.add(proposal.tree.drafted / budget.nodes)

    def verified(self, rows: int, context: int, evidence: Evidence, waited_s: float) -> None:
        """A tree of `rows` nodes, root included, behind `context` cached rows was verified."""
        target = self._target
        way = max(0.0, waited_s * 1e6 - evidence.queue_us - evidence.forward_us)
        target.wire.add(way)
        target.verify.settle(context)
        target.stepped(evidence.load, evidence.forward_us, 1e6 * self._clock() - way / 2)

    def decided(
        self, budget: Budget, method: str, tree: TokenTree, accepted: Sequence[int]
    ) -> None:
        """The walk kept these nodes of the tree that `method` drafted for `budget`."""
        self._running, self._leaving, self._allowance = False, None, 0.0
        self._probing = max(0, self._probing - 1)
        self._confirmed, self._aging = False, AGING
        self._shadowing.again()
        spine = self._siblings.book(tree, accepted)
        if not self._late:  # what came too late says nothing of acceptance
            self._book(budget.depth, len(accepted) if self._bounds.whole else spine)

    def ran(self, run: RunTokens, waited_s: float) -> None:
        """A free run brought tokens."""
        if not self._asked and self._leaving is None:  # behind a halt nobody asks
            self._told(Choice(0, 0, Reason.NOT_READY))
        self._asked = False
        if self._running and not run.load.left_out:  # the first of a run came over the wire
            self._target.gap.add(waited_s * 1e6 - run.forward_us)
        self._running = True
        self._behind += len(run.tokens)
        self._shadowing.ran(len(run.tokens))
        self._survival.age((1.0 - self._aging) ** len(run.tokens))
        if not self._shadows:
            saved = self._allowance + SAVED * len(run.tokens)
            self._allowance = min(MOST_SAVED, saved)
        self._target.stepped(run.load, run.forward_us, 1e6 * self._clock())

    # Shadow drafts

    def shadow(self, remaining: int) -> Budget | None:
        """What to draft beside a free run, if anything now."""
        probes = self._shadowing
        if not (self._asks or probes.stale or (self._shadows and probes.due)):
            return None
        self._asks = False
        depth = self._probe_depth(remaining)
        probes.take(depth, self._gain)
        return self._for(Choice(depth, depth, Reason.PROBE))

    def shadowed(self, budget: Budget, proposal: Proposal | None, compared: int, kept: int) -> None:
        """A shadow draft was compared with `compared` tokens of the run and agreed to `kept`."""
        self._confirmed = True
        if self._shadows and proposal is not None and compared:
            asked = min(compared, budget.depth)
            if kept > 1.0 + sum(self._survival.curve()[:asked]):  # better than was thought
                self._shadowing.again()
            self._book(asked, kept)

    def _probe_depth(self, remaining: int) -> int:
        return min(max(2, self._bounds.recommended), self._bounds.most, remaining - 1)

    def _book(self, asked: int, kept: int) -> None:
        self._survival.book(asked, kept)
        self._drafter.counts.add(asked, kept, COMPANY_DECAY)
        self._shared(asked, kept)

    def _for(self, choice: Choice) -> Budget | None:
        if choice.depth < 1:
            return None
        self._target.drafting.ask(id(self), 1e6 * self._clock())
        return replace(
            self._budget,
            depth=choice.depth,
            nodes=choice.nodes,
            time_left_s=self._drafter.patience_s(self._budget.time_left_s),
            least_node=choice.least_node,
            least_level=choice.least_level,
        )
