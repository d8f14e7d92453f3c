"""One request's reply messages: parts as tokens are committed, and the summary behind them."""

from __future__ import annotations

import time
from typing import Protocol

from tokenizers import Tokenizer

from orchestrator.peers import Committed
from orchestrator.report import Report
from orchestrator.requests import Request
from orchestrator.text import TextStream
from outrider.core.acceptance import Kind
from outrider.v1 import orchestrator_pb2, target_pb2

KINDS = {
    Kind.ACCEPTED: orchestrator_pb2.TOKEN_KIND_ACCEPTED,
    Kind.RECOVERED: orchestrator_pb2.TOKEN_KIND_RECOVERED,
    Kind.BONUS: orchestrator_pb2.TOKEN_KIND_BONUS,
    Kind.PLAIN: orchestrator_pb2.TOKEN_KIND_PLAIN,
}


class Metered(Protocol):
    """A peer that counts its bytes."""

    @property
    def round_bytes(self) -> int:
        """Serialised bytes of the rounds, features apart."""


class MeteredDrafter(Metered, Protocol):
    """A drafter that also counts what came too late."""

    @property
    def late(self) -> int:
        """Proposals that came too late."""


class Reply:
    """Turns what the loop commits into messages and knows when the request is done."""

    def __init__(
        self, request: Request, target: target_pb2.TargetInfo, tokenizer: Tokenizer, started: float
    ) -> None:
        self._request = request
        self._target = target
        self._text = TextStream(tokenizer, request.stop)
        self._started = started
        self._first_token_us = 0
        self.tokens = 0
        self._ended_by_token = False
        self.finished = False

    def part(self, committed: Committed) -> orchestrator_pb2.GenerateReply:
        """The message for tokens committed together; those behind a stop string are left out."""
        if not self.tokens:
            self._first_token_us = self._elapsed_us()
        ids: list[int] = []
        text = ""
        for token in committed.tokens:
            ids.append(token)
            if not self._ends(token):
                text += self._text.push(token)
            if self._text.stopped:
                break
        self.tokens += len(ids)
        self.finished = committed.finished or self._text.stopped
        if self.finished:
            text += self._text.finish()
            self._ended_by_token = self._text.stopped or self._ends(ids[-1])
        kinds = [KINDS[kind] for kind in committed.kinds[: len(ids)]]
        return orchestrator_pb2.GenerateReply(token_ids=ids, kinds=kinds, text=text)

    def summary(
        self, report: Report, verifier: Metered, drafter: MeteredDrafter | None
    ) -> orchestrator_pb2.GenerateReply:
        """The last message."""
        stop, length = orchestrator_pb2.FINISH_REASON_STOP, orchestrator_pb2.FINISH_REASON_LENGTH
        speculation, numerics = self._request.speculation, self._target.model.numerics
        return orchestrator_pb2.GenerateReply(
            summary=orchestrator_pb2.Summary(
                finish_reason=stop if self._ended_by_token else length,
                usage=orchestrator_pb2.Usage(
                    prompt_tokens=len(self._request.prompt), completion_tokens=self.tokens
                ),
                speculation=orchestrator_pb2.SpeculationReport(
                    method=report.method,
                    rounds=report.rounds,
                    drafted=report.drafted,
                    accepted=report.accepted,
                    emitted=report.emitted,
                    drafted_per_position=report.drafted_per_position,
                    accepted_per_position=report.accepted_per_position,
                    passes=report.passes,
                    late_proposals=0 if drafter is None else drafter.late,
                    tree_exact=speculation.tree_exact,
                ),
                timings=orchestrator_pb2.Timings(
                    total_us=self._elapsed_us(),
                    first_token_us=self._first_token_us,
                    draft_wait_us=report.draft_wait_us,
                    draft_us=report.draft_us,
                    verify_wait_us=report.verify_wait_us,
                    verify_us=report.verify_us,
                    queue_us=report.queue_us,
                    round_bytes=verifier.round_bytes
                    + (0 if drafter is None else drafter.round_bytes),
                ),
                request_id=self._request.request_id,
                model=self._target.model.name,
                exact=(speculation.tree_exact or speculation.nodes <= speculation.depth)
                and not numerics.self_check.startswith("inexact"),
                numerics=numerics,
            )
        )

    def _ends(self, token: int) -> bool:
        return not self._request.ignore_eos and token in self._target.eos_ids

    def _elapsed_us(self) -> int:
        return int((time.perf_counter() - self._started) * 1e6)
