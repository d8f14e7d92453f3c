"""What the SDK returns."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """What decides whether two targets give the same bits.

    self_check is exact, unchecked, or says what is inexact on the target's machine.
    """

    weights_hash: str
    dtype: str
    quantization: str
    kernels: str
    fingerprint: str
    self_check: str = ""

    @property
    def quantised(self) -> bool:
        """Whether the target's weights are not those that were published."""
        return self.quantization not in ("", "none")

    @property
    def label(self) -> str:
        """What computes: the quantisation, such as int8, or the dtype."""
        return self.quantization if self.quantised else self.dtype


@dataclass(frozen=True)
class GenerationResult:
    """A finished text.

    text has neither the EOS nor anything from a stop string on; token_ids have the EOS. kinds has
    accepted, recovered, bonus or plain for each token. finish_reason is stop, length or cancelled.
    exact is False where the request allowed, or a failure forced, anything that may differ from
    plain decoding in bits, and where the target's self-check found that its bits do.
    target_quantization is "none", or how the target's weights are rounded: then the text is that of
    the quantised target.
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
    def target_quantization(self) -> str:
        """none, or int8 (weights and activations; in the lean decoder keys and values too)."""
        return self.numerics.quantization or "none"

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
    """What is served, and the limits.

    recommended_depths, recommended_nodes: by method; 0 nodes: as many as the depth, a chain.
    """

    model: ModelInfo
    methods: list[str]
    recommended_depths: dict[str, int]
    recommended_nodes: dict[str, int]
    max_depth: int
    max_nodes: int
    live_requests: int
    requests_total: int
    version: str
