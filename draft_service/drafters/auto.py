"""Chooses, round by round, the drafter that promises the most tokens per unit of time.

A drafter whose proposals carry a score (a match in the text) is asked first: it costs next to
nothing. What the others are worth is known from how their drafts fared at each depth. The choice is
made from the score, those statistics and measured times, before any other drafter runs: nothing
that it looks at depends on a token drawn at random, so the law of the text stays the target's. A
tree of which nothing was drawn then takes in those nodes of the match that are likelier than its
own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from draft_service.drafters.costs import Costs, demanding
from draft_service.drafters.merge import merged
from draft_service.drafters.track import Passes, Rates, kept_depth
from draft_service.drafters.union import narrowed, union
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import Drafter, DraftSession

FIRST_ROW = 0.06
"""Cost of a drafted node at the target, in passes without one, until passes were timed: between
bfloat16 and float32 on two cores."""

FIRST_RATE = {False: 0.4, True: 0.55}
"""Conditional acceptance of chains and of trees before anything is known."""

_WEIGHT = 4.0
_SESSION_DECAY, _GENERAL_DECAY = 0.97, 0.999

Clock = Callable[[], float]


@dataclass
class _State:
    """What a session keeps besides the sessions of the drafters.

    rates: of each drafter's chains and trees.
    last, asked: the last proposal and the budget that it was made for; sent: when it was made.
    """

    sessions: dict[str, DraftSession]
    rates: dict[tuple[str, bool], Rates]
    last: Proposal | None = None
    asked: Budget | None = None
    sent: float = 0.0


@dataclass(frozen=True)
class Choice:
    """A drafter, the budget that it gets, and what it promises: tokens per pass without drafts."""

    method: str
    budget: Budget
    rate: float


class AutoDrafter(Drafter):
    """Holds the other drafters of a draft service, which serve their own sessions beside.

    Args:
        drafters: at least one, by the name under which statistics are booked.
        clock: seconds.

    Raises:
        ValueError: there is no drafter.
    """

    method = "auto"

    def __init__(self, drafters: Sequence[Drafter], clock: Clock = time.perf_counter) -> None:
        if not drafters:
            raise ValueError("drafters: 0, limit at least 1")
        self.drafters = {drafter.method: drafter for drafter in drafters}
        self.recommended_depth = max(drafter.recommended_depth for drafter in drafters)
        self.recommended_nodes = max(drafter.recommended_nodes for drafter in drafters)
        self.features = union([drafter.features for drafter in drafters])
        self.wants_samples = any(drafter.wants_samples for drafter in drafters)
        self._clock = clock
        self._passes = Passes(FIRST_ROW)
        # What is known beyond a session of chains and trees, apart for greedy and sampled requests.
        self._general = {
            (method, tree, greedy): Rates(FIRST_RATE[tree], _WEIGHT, _GENERAL_DECAY)
            for method, drafter in self.drafters.items()
            if not drafter.scores
            for tree in (False, True)
            for greedy in (False, True)
        }
        self._costs = Costs()

    def open(self, prompt: Sequence[int], sampling: SamplingParams) -> DraftSession:
        """A session of every drafter."""
        sessions: dict[str, DraftSession] = {}
        with ExitStack() as undo:
            for method, drafter in self.drafters.items():
                sessions[method] = drafter.open(prompt, sampling)
                undo.callback(drafter.close, sessions[method])
            undo.pop_all()
        rates = {
            (method, tree): Rates(general, _WEIGHT, _SESSION_DECAY)
            for (method, tree, greedy), general in self._general.items()
            if greedy == sampling.greedy
        }
        return DraftSession(list(prompt), sampling, _State(sessions, rates))

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        """One drafter after the other; those that are done cost nothing."""
        state: _State = session.state
        return all(
            drafter.prefill(state.sessions[method], rows)
            for method, drafter in self.drafters.items()
        )

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        """Books the last proposal and tells every drafter.

        To observe is cheap by contract; a drafter with a model works off what it missed when it is
        chosen next, in one pass. Samples belong to the last tree, so only its drafter gets them.
        """
        state: _State = session.state
        session.tokens.extend(new_tokens)
        last, state.last = state.last, None
        if last is not None and new_tokens:
            self._book(session, last, new_tokens)
        for method, drafter in self.drafters.items():
            drafter.observe(
                state.sessions[method],
                new_tokens,
                narrowed(features, self.features, drafter.features),
                samples if last is not None and method == last.method else (),
            )

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        """Each session's best drafter; those that chose the same one are drafted together."""
        matches = self._matches(batch)
        chosen: dict[str, list[int]] = defaultdict(list)
        budgets: list[Budget] = []
        proposals: list[Proposal | None] = []
        for place, (session, budget) in enumerate(batch):
            match = matches[place]
            choice = self._choose(session, budget)
            taken = match is not None and (choice is None or self._worth(match) >= choice.rate)
            proposals.append(match if taken or choice is None else None)
            budgets.append(budget if choice is None else choice.budget)
            if not taken and choice is not None:
                chosen[choice.method].append(place)
        for method, places in chosen.items():
            asked = [(batch[p][0].state.sessions[method], budgets[p]) for p in places]
            for place, proposal in zip(places, self._timed(method, asked), strict=True):
                proposals[place] = merged(proposal, matches[place], budgets[place])
        answers = []
        for (session, _), budget, made in zip(batch, budgets, proposals, strict=True):
            answer = made or self._empty(session)
            state: _State = session.state
            state.last, state.asked = answer, budget
            state.sent = self._clock()
            answers.append(answer)
        return answers

    def close(self, session: DraftSession) -> None:
        """Frees the sessions of all drafters, whatever one of them does."""
        with ExitStack() as closing:
            for method, inner in session.state.sessions.items():
                closing.callback(self.drafters[method].close, inner)
        session.state = None

    def _matches(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal | None]:
        """For each session the best that drafters found which score their own proposals."""
        found: list[list[Proposal]] = [[] for _ in batch]
        for method, drafter in self.drafters.items():
            if drafter.scores:
                asked = [(session.state.sessions[method], budget) for session, budget in batch]
                for matches, proposal in zip(found, self._timed(method, asked), strict=True):
                    matches.append(proposal)
        return [max(each, key=lambda match: match.score, default=None) for each in found]

    def _timed(
        self, method: str, asked: Sequence[tuple[DraftSession, Budget]]
    ) -> Sequence[Proposal]:
        """Proposals of one drafter, their time taken down."""
        started = self._clock()
        proposals = self.drafters[method].propose(asked)
        budgets = [budget for _, budget in asked]
        self._costs.add(method, budgets, proposals, self._clock() - started)
        return proposals

    def _choose(self, session: DraftSession, budget: Budget) -> Choice | None:
        """The best of the drafters that do not score, and the chain or tree at which it is best.

        None where no draft is worth its cost. As rates fade, one is tried again in time.
        """
        state: _State = session.state
        row, base = self._passes.row, self._passes.base
        deepest = min(budget.depth, budget.nodes)
        best: Choice | None = None
        for method, drafter in self.drafters.items():
            if drafter.scores:
                continue
            level = self._costs.level_s(method) / base if base else 0.0
            chains = state.rates[method, False].accepted(deepest)
            for depth, accepted in enumerate(chains, start=1):
                rate = (1.0 + accepted) / (1.0 + (row + level) * depth)
                if rate > (1.0 if best is None else best.rate):
                    best = Choice(method, replace(budget, depth=depth, nodes=depth), rate)
            if chains and budget.nodes > budget.depth:
                drawn = session.sampling.draws  # its shape is fixed before, so it never ends early
                usual = min(budget.depth, drafter.recommended_depth if drawn else budget.depth)
                asked = replace(budget, depth=usual)
                accepted = state.rates[method, True].accepted(usual)[-1]
                nodes, seconds = self._costs.tree(method, asked)
                rate = (1.0 + accepted) / (1.0 + row * nodes + (seconds / base if base else 0.0))
                if rate > (1.0 if best is None else best.rate):
                    best = Choice(method, demanding(asked, rate, row, level), rate)
        return best

    def _worth(self, match: Proposal) -> float:
        """What a match promises; its time is spent already."""
        if not match.tree.drafted:
            return 0.0
        return (1.0 + match.score) / (1.0 + self._passes.row * match.tree.drafted)

    def _book(self, session: DraftSession, last: Proposal, tokens: Sequence[int]) -> None:
        """Rates of the drafter that made the last proposal, and the time of the pass.

        The walk can be repeated from the committed tokens, also where the proposal came too late.
        """
        asked: Budget = session.state.asked
        kept = kept_depth(last.tree, tokens)
        for (method, tree), rates in session.state.rates.items():
            for each in (rates, self._general[method, tree, session.sampling.greedy]):
                each.fade()
                if method == last.method and tree == (asked.nodes > asked.depth):
                    each.book(asked.depth, kept)
        if len(tokens) <= kept + 1:  # more were a free run: it is not the time of one pass
            self._passes.add(last.tree.drafted, self._clock() - session.state.sent)
