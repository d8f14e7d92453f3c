"""Prometheus metrics and the small HTTP endpoint that serves them.

Names of vLLM where it has them, so that its tools read them, and the same under our own prefix:

    acceptance rate     rate(vllm:spec_decode_num_accepted_tokens_total[1m])
                          / rate(vllm:spec_decode_num_draft_tokens_total[1m])
    acceptance length   1 + rate(vllm:spec_decode_num_accepted_tokens_total[1m])
                          / rate(vllm:spec_decode_num_drafts_total[1m])
    kept at depth i+1   outrider_spec_decode_num_accepted_tokens_per_pos_total{position="i"}
                          / outrider_spec_decode_num_draft_tokens_per_pos_total{position="i"}

Counts of tokens are added when a request ends and are the sums of the requests' own reports; the
others follow each round. Positions start at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from orchestrator.peers import RunTokens
from orchestrator.report import Report
from orchestrator.state import Choice
from outrider.core.round import Budget, Evidence, Proposal
from outrider.core.tree import TokenTree

DEPTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
PHASES = ("draft_wait", "draft", "draft_queue", "verify_wait", "verify", "queue")
PREFIXES = ("vllm:", "outrider_")


@dataclass(frozen=True)
class Served:
    """A running endpoint."""

    server: WSGIServer
    thread: Thread

    @property
    def port(self) -> int:
        """The bound port."""
        return self.server.server_port

    def stop(self) -> None:
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Metrics:
    """All metrics of one orchestrator, in a registry of its own."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._drafts = self._pair("num_drafts", "Rounds: target passes with a draft.")
        self._drafted = self._pair("num_draft_tokens", "Drafted tokens sent to the target.")
        self._accepted = self._pair("num_accepted_tokens", "Drafted tokens kept.")
        self._accepted_at = self._pair(
            "num_accepted_tokens_per_pos", "Rounds that kept this position.", "position"
        )
        self._drafted_at = self._counter(
            "outrider_spec_decode_num_draft_tokens_per_pos",
            "Rounds whose draft reached this position.",
            "position",
        )
        self._tokens = self._counter("outrider_generation_tokens", "Tokens of ended requests.")
        self._requests = self._counter("outrider_requests", "Requests that ended.", "method")
        self._decisions = self._counter(
            "outrider_controller_decisions", "What the controller chose K for.", "reason"
        )
        self._depth = Histogram(
            "outrider_draft_depth",
            "Depth K that rounds asked for; 0 is a chunk of a free run.",
            ("model_name",),
            buckets=DEPTHS,
            registry=self.registry,
        ).labels(model)
        seconds = Histogram(
            "outrider_round_seconds",
            "Time of a round by phase: *_wait as the loop waited, the others as peers report.",
            ("model_name", "phase"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.phases = {phase: seconds.labels(model, phase) for phase in PHASES}
        self.running = Gauge(
            "outrider_requests_running",
            "Requests in progress.",
            ("model_name",),
            registry=self.registry,
        ).labels(model)

    def serve(self, host: str, port: int) -> Served:
        """Serves /metrics on a thread.

        Raises:
            OSError: the port cannot be bound.
        """
        return Served(*start_http_server(port, host, self.registry))

    def ended(self, report: Report, tokens: int) -> None:
        """A request ended."""
        for counters, value in (
            (self._drafts, report.rounds),
            (self._drafted, report.drafted),
            (self._accepted, report.accepted),
        ):
            for counter in counters:
                counter.labels(self._model).inc(value)
        for position, count in enumerate(report.accepted_per_position):
            for counter in self._accepted_at:
                counter.labels(self._model, str(position)).inc(count)
        for position, count in enumerate(report.drafted_per_position):
            self._drafted_at.labels(self._model, str(position)).inc(count)
        self._tokens.labels(self._model).inc(tokens)
        self._requests.labels(self._model, report.method).inc()

    def chose(self, choice: Choice) -> None:
        """The controller chose."""
        self._decisions.labels(self._model, choice.reason.value).inc()

    # The loop's Witness

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        """Books the phases of a proposal."""
        self.phases["draft_wait"].observe(waited_s)
        self._depth.observe(budget.depth)
        if proposal is not None:
            self.phases["draft"].observe(proposal.draft_us / 1e6)
            self.phases["draft_queue"].observe(proposal.queue_us / 1e6)

    def verified(self, rows: int, context: int, evidence: Evidence, waited_s: float) -> None:
        """Books the phases of a verification."""
        self.phases["verify_wait"].observe(waited_s)
        self.phases["verify"].observe(evidence.forward_us / 1e6)
        self.phases["queue"].observe(evidence.queue_us / 1e6)

    def decided(
        self, budget: Budget, method: str, tree: TokenTree, accepted: Sequence[int]
    ) -> None:
        """Nothing: tokens are counted when the request ends."""

    def ran(self, run: RunTokens, waited_s: float) -> None:
        """Books a chunk of a free run as K=0."""
        self._depth.observe(0)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ("model_name", *labels), registry=self.registry)

    def _pair(self, name: str, text: str, *labels: str) -> tuple[Counter, ...]:
        names = [f"{prefix}spec_decode_{name}" for prefix in PREFIXES]
        return tuple(self._counter(full, text, *labels) for full in names)
