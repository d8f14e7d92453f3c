"""The round loop: draft, verify, decide, emit. Everything that makes the text lives behind two
Protocols.

Tokens that were yielded are committed. A free run (K=0) is taken whenever the controller says so,
the drafter is not ready, or one token remains; it hands over between any two tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from orchestrator.peers import Committed, Controller, Drafter, Verifier, Witness
from orchestrator.report import Report
from orchestrator.shadow import Shadow
from outrider.core.acceptance import Decision, Kind, Uniform, decide
from outrider.core.round import Budget, Commit, Evidence, Features, Proposal
from outrider.core.tree import TokenTree


@dataclass(frozen=True)
class Limits:
    """Where a text ends: behind max_tokens tokens, or behind a stop id."""

    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    tree_exact: bool = True


class Loop:
    """One request's generation.

    Args:
        prompt: token ids [n], at least one.
        drafter: None where there is nothing to speculate with.
        uniform: numbers in [0, 1) for the Rejection rule, drawn by nobody else.
        report: filled as the rounds go by.
        witnesses: hear of the rounds as they go by.
        shadow: drafts beside free runs; None: nobody does.
    """

    def __init__(
        self,
        prompt: list[int],
        limits: Limits,
        verifier: Verifier,
        drafter: Drafter | None,
        controller: Controller,
        uniform: Uniform,
        report: Report,
        witnesses: Sequence[Witness] = (),
        shadow: Shadow | None = None,
    ) -> None:
        self._tokens = list(prompt)
        self._end = len(prompt) + limits.max_tokens
        self._limits = limits
        self._verifier = verifier
        self._drafter = drafter
        self._controller = controller
        self._uniform = uniform
        self._report = report
        self._witnesses = witnesses
        self._shadow = shadow
        self._commit: Commit | None = None
        self._called = drafter is None

    async def run(self) -> AsyncGenerator[Committed, None]:
        """Yields tokens as they are committed, the prefill's first."""
        empty = Proposal(TokenTree.root_only(self._tokens[-1]), "")
        yield self._settle(empty, await self._verifier.prefill())
        while not self._finished:
            if (budget := self._budget()) is not None:
                async with aclosing(self._rounds(budget)) as rounds:
                    async for committed in rounds:
                        yield committed
            if not self._finished:
                async with aclosing(self._free_run()) as run:
                    async for committed in run:
                        yield committed

    async def _rounds(self, budget: Budget | None) -> AsyncGenerator[Committed, None]:
        """Rounds until K=0 is chosen or the text ends.

        The next draft is asked for before a round's tokens are given out, so that it is made while
        they become text and are sent.
        """
        drafting: asyncio.Task[Proposal] | None = None
        try:
            while budget is not None:
                proposal = await (drafting or self._propose(budget))
                committed = self._settle(proposal, await self._verify(proposal), budget)
                accepted = committed.kinds.count(Kind.ACCEPTED)
                self._report.add_round(
                    proposal.method, proposal.tree, accepted, len(committed.tokens)
                )
                budget = None if self._finished else self._budget()
                if budget is not None:
                    drafting = asyncio.create_task(self._propose(budget))
                    await asyncio.sleep(0)  # it sends its request
                yield committed
        finally:
            if drafting is not None:
                drafting.cancel()

    @property
    def _finished(self) -> bool:
        return len(self._tokens) >= self._end or self._tokens[-1] in self._limits.stop_ids

    def call_drafter(self) -> bool:
        """Opens the drafter's session where the controller wants one, which is not free; whether it
        was opened now."""
        if self._called or not self._controller.calls(self._end - len(self._tokens)):
            return False
        assert self._drafter is not None
        self._called = True
        self._drafter.open()
        return True

    def _budget(self) -> Budget | None:
        if self._drafter is None or not self._drafter.ready:
            return None
        if self._shadow is not None and not self._shadow.idle:
            return None
        return self._controller.choose(self._end - len(self._tokens))

    async def _propose(self, budget: Budget) -> Proposal:
        assert self._drafter is not None
        started = time.perf_counter()
        proposal = await self._drafter.propose(budget)
        waited = time.perf_counter() - started
        self._report.add_draft(proposal, waited)
        for witness in self._witnesses:
            witness.drafted(budget, proposal, waited)
        return proposal or Proposal(TokenTree.root_only(self._tokens[-1]), self._drafter.method)

    async def _verify(self, proposal: Proposal) -> Evidence:
        started = time.perf_counter()
        supports = {node: q.ids for node, q in proposal.drawn_from.items()}
        evidence = await self._verifier.verify(
            len(self._tokens), self._commit, proposal.tree, supports, self._limits.tree_exact
        )
        waited = time.perf_counter() - started
        self._report.add_verify(evidence, waited)
        for witness in self._witnesses:
            witness.verified(len(proposal.tree), len(self._tokens) - 1, evidence, waited)
        return evidence

    def _settle(
        self, proposal: Proposal, evidence: Evidence, budget: Budget | None = None
    ) -> Committed:
        """Decides a tree, commits, and tells the drafter. EOS within the path ends it there."""
        tree = proposal.tree
        decision = decide(tree, proposal.drawn_from, evidence, self._uniform)
        self._commit = Commit(decision.accepted, decision.emitted)
        if budget is not None:
            for witness in self._witnesses:
                witness.decided(budget, proposal.method, tree, decision.accepted)
        tokens = [*(tree.tokens[node] for node in decision.accepted), decision.emitted]
        kinds = [*(Kind.ACCEPTED for _ in decision.accepted), decision.kind]
        stop = next(
            (i for i, token in enumerate(tokens) if token in self._limits.stop_ids), len(tokens)
        )
        tokens, kinds = tokens[: stop + 1], kinds[: stop + 1]
        if self._drafter is not None:
            features = [*self._verifier.take_features(), *_accepted_rows(evidence, decision)]
            # Under Rejection they are tokens from outside q~, not what the target would say.
            told = self._drafter.wants_samples and not proposal.drawn_from
            self._drafter.observe(tokens, features, evidence.samples if told else ())
        return self._extend(tokens, kinds)

    async def _free_run(self) -> AsyncGenerator[Committed, None]:
        left = self._end - len(self._tokens)
        halted = False
        run = self._verifier.free_run(
            len(self._tokens), self._commit, self._tokens[-1], left, self._limits.stop_ids
        )
        self._commit = None
        started = time.perf_counter()
        async with aclosing(run) as chunks:
            async for chunk in chunks:
                now = time.perf_counter()
                self._report.passes += len(chunk.tokens)
                self._report.verify_wait_us += int((now - started) * 1e6)
                self._report.verify_us += chunk.forward_us
                self._report.queue_us += chunk.queue_us
                for witness in self._witnesses:
                    witness.ran(chunk, now - started)
                started = now
                if self._drafter is not None:
                    features = () if chunk.features is None else (chunk.features,)
                    self._drafter.observe(chunk.tokens, features, ())
                committed = self._extend(list(chunk.tokens), [Kind.PLAIN] * len(chunk.tokens))
                if self._shadow is not None and not halted:
                    self._shadow.ran(chunk.tokens, self._end - len(self._tokens))
                if not self._finished and self.call_drafter():
                    await self._verifier.want_features()
                yield committed
                if not halted and not self._finished and self._budget() is not None:
                    halted = True
                    await self._verifier.halt()
        if self._shadow is not None:
            self._shadow.ended()

    def _extend(self, tokens: list[int], kinds: list[Kind]) -> Committed:
        self._tokens += tokens
        return Committed(tuple(tokens), tuple(kinds), self._finished)


def _accepted_rows(evidence: Evidence, decision: Decision) -> list[Features]:
    """The feature rows of the root and the accepted nodes, out of those of the walked nodes."""
    features = evidence.features
    if features is None:
        return []
    wanted = {0, *decision.accepted}
    size = 2 * features.width
    kept = [row for row, node in enumerate(evidence.walked) if node in wanted]
    data = b"".join(features.data[row * size : (row + 1) * size] for row in kept)
    return [Features(features.start, len(kept), features.width, data)]
