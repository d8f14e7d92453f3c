"""What the SDK returns, and how the server's messages become it."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.exceptions import ServerError
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


@dataclass(frozen=True)
class Usage:
    """Tokens of the request; completion_tokens count the EOS."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Speculation:
    """How speculation went.

    A round is a target pass with at least one drafted node. drafted: nodes sent to the target;
    accepted: those kept; emitted: tokens of the rounds, recovered and bonus ones included; passes:
    all target passes behind the prefill, those of K=0 counted; late_proposals: those that came too
    late. drafted_per_position[i]: rounds whose tree reached depth i+1; accepted_per_position[i]:
    that kept it.
    """

    method: str
    rounds: int
    drafted: int
    accepted: int
    emitted: int
    passes: int
    late_proposals: int
    tree_exact: bool
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)

    @property
    def acceptance_rate(self) -> float:
        """accepted / drafted; 0.0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per round, the recovered or bonus token included; 0.0 without a round."""
        return self.emitted / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Timings:
    """Sums over the request, measured by the server.

    Microseconds, and bytes of the rounds' messages.
    """

    total_us: int
    first_token_us: int
    draft_wait_us: int
    draft_us: int
    verify_wait_us: int
    verify_us: int
    queue_us: int
    round_bytes: int


@dataclass(frozen=True)
class Numerics:
    """What decides whether two targets give the same bits."""

    weights_hash: str
    dtype: str
    quantization: str
    kernels: str
    fingerprint: str


@dataclass(frozen=True)
class GenerationResult:
    """A finished text.

    text has neither the EOS nor anything from a stop string on; token_ids have the EOS. kinds has
    accepted, recovered, bonus or plain for each token. finish_reason is stop, length or cancelled.
    exact is False where the request allowed, or a failure forced, anything that may differ from
    plain decoding in bits.
    """

    text: str
    token_ids: list[int]
    kinds: list[str]
    finish_reason: str
    usage: Usage
    speculation: Speculation
    timings: Timings
    model: str
    exact: bool
    request_id: str
    numerics: Numerics

    @property
    def tokens_per_pass(self) -> float:
        """Tokens behind the prefill's per target pass, those of K=0 counted.

        Plain decoding is 1.0.
        """
        passes = self.speculation.passes
        return max(self.usage.completion_tokens - 1, 0) / passes if passes else 0.0


@dataclass(frozen=True)
class Chunk:
    """Tokens committed together, and the text that became certain with them.

    `result` on the last one.
    """

    text: str
    token_ids: list[int]
    kinds: list[str]
    result: GenerationResult | None = None


@dataclass(frozen=True)
class ModelInfo:
    """The model that is served."""

    name: str
    tokenizer_fingerprint: str
    vocab_size: int
    context_length: int
    numerics: Numerics


@dataclass(frozen=True)
class ServerInfo:
    """What is served, and the limits; recommended_depths by method."""

    model: ModelInfo
    methods: list[str]
    recommended_depths: dict[str, int]
    max_depth: int
    max_nodes: int
    live_requests: int
    requests_total: int
    version: str


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
        max_depth=info.max_depth,
        max_nodes=info.max_nodes,
        live_requests=info.live_requests,
        requests_total=info.requests_total,
        version=info.version,
    )
