"""From the server's messages to what the SDK returns."""

from __future__ import annotations

from outrider.exceptions import ServerError
from outrider.results import (
    Chunk,
    GenerationResult,
    ModelInfo,
    Numerics,
    ServerInfo,
    Speculation,
    Timings,
    Usage,
)
from outrider.v1 import orchestrator_pb2, types_pb2

KINDS = {
    orchestrator_pb2.TOKEN_KIND_UNSPECIFIED: "plain",
    orchestrator_pb2.TOKEN_KIND_ACCEPTED: "accepted",
    orchestrator_pb2.TOKEN_KIND_RECOVERED: "recovered",
    orchestrator_pb2.TOKEN_KIND_BONUS: "bonus",
    orchestrator_pb2.TOKEN_KIND_PLAIN: "plain",
}
FINISH_REASONS = {
    orchestrator_pb2.FINISH_REASON_STOP: "stop",
    orchestrator_pb2.FINISH_REASON_LENGTH: "length",
    orchestrator_pb2.FINISH_REASON_CANCELLED: "cancelled",
}


class ReplyFolder:
    """Folds the replies of one call into chunks and the result."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._kinds: list[str] = []
        self.begun = False
        self.finished = False

    def add(self, reply: orchestrator_pb2.GenerateReply) -> Chunk:
        """The chunk of a reply."""
        self.begun = True
        token_ids, kinds = list(reply.token_ids), [KINDS.get(kind, "plain") for kind in reply.kinds]
        self._text.append(reply.text)
        self._token_ids += token_ids
        self._kinds += kinds
        if not reply.HasField("summary"):
            return Chunk(reply.text, token_ids, kinds)
        self.finished = True
        return Chunk(reply.text, token_ids, kinds, self._result(reply.summary))

    def finish(self) -> None:
        """Checks that the last reply carried the totals.

        Raises:
            ServerError: it did not.
        """
        if not self.finished:
            raise ServerError("the stream ended without its summary")

    def _result(self, summary: orchestrator_pb2.Summary) -> GenerationResult:
        reason = FINISH_REASONS.get(summary.finish_reason)
        if reason is None:
            raise ServerError(f"summary.finish_reason: {summary.finish_reason} is not known")
        return GenerationResult(
            text="".join(self._text),
            token_ids=self._token_ids,
            kinds=self._kinds,
            finish_reason=reason,
            usage=Usage(summary.usage.prompt_tokens, summary.usage.completion_tokens),
            speculation=_speculation(summary.speculation),
            timings=Timings(
                *(getattr(summary.timings, name) for name in Timings.__dataclass_fields__)
            ),
            model=summary.model,
            exact=summary.exact,
            request_id=summary.request_id,
            numerics=_numerics(summary.numerics),
        )


def _speculation(report: orchestrator_pb2.SpeculationReport) -> Speculation:
    return Speculation(
        method=report.method,
        rounds=report.rounds,
        drafted=report.drafted,
        accepted=report.accepted,
        emitted=report.emitted,
        passes=report.passes,
        late_proposals=report.late_proposals,
        tree_exact=report.tree_exact,
        drafted_per_position=list(report.drafted_per_position),
        accepted_per_position=list(report.accepted_per_position),
    )


def _numerics(numerics: types_pb2.Numerics) -> Numerics:
    return Numerics(*(getattr(numerics, name) for name in Numerics.__dataclass_fields__))


def server_info(info: orchestrator_pb2.OrchestratorInfo) -> ServerInfo:
    """The SDK's form of a server's answer."""
    model = info.model
    return ServerInfo(
        model=ModelInfo(
            name=model.name,
            tokenizer_fingerprint=model.tokenizer_fingerprint,
            vocab_size=model.vocab_size,
            context_length=model.context_length,
            numerics=_numerics(model.numerics),
        ),
        methods=list(info.methods),
        recommended_depths=dict(zip(info.methods, info.recommended_depths, strict=False)),
        recommended_nodes=dict(zip(info.methods, info.recommended_nodes, strict=False)),
        max_depth=info.max_depth,
        max_nodes=info.max_nodes,
        live_requests=info.live_requests,
        requests_total=info.requests_total,
        version=info.version,
    )
