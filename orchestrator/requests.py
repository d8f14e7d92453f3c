"""From a GenerateRequest to what the loop needs; what does not fit is refused by field, value and
limit."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from outrider.core.round import SamplingParams
from outrider.drafting.specs import AUTO
from outrider.serving.errors import InvalidArgument
from outrider.serving.wire import check_range, check_tokens, sampling_from_proto
from outrider.v1 import orchestrator_pb2

PLAIN = "plain"  # the method of a request that is not to be speculated for
ROLES = ("system", "user", "assistant")
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_LABEL_CHARS = 64


@dataclass(frozen=True)
class Method:
    """A drafter that requests may name, and what it recommends; 0 nodes: as many as the depth.

    whole: it is asked for all of a budget, or for nothing.
    """

    name: str
    recommended_depth: int
    recommended_nodes: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Bounds:
    """What this deployment allows; prompt_bytes is the most text that could fit in the context."""

    vocab_size: int
    context_length: int
    prompt_bytes: int
    max_depth: int
    max_nodes: int


@dataclass(frozen=True)
class Speculation:
    """How a request is speculated for; depth 0 is off and has no method; least = depth: fixed."""

    method: str
    least: int
    depth: int
    nodes: int
    p_min: float
    tree_exact: bool


@dataclass(frozen=True)
class Request:
    """A checked request."""

    request_id: str
    prompt: list[int]
    max_tokens: int
    sampling: SamplingParams
    stop: tuple[str, ...]
    ignore_eos: bool
    class_: str
    speculation: Speculation


def parse(
    message: orchestrator_pb2.GenerateRequest,
    tokenizer: Any,
    bounds: Bounds,
    methods: Sequence[Method],
) -> Request:
    """The checked request.

    Args:
        tokenizer: the target's transformers tokenizer.

    Raises:
        InvalidArgument: the first field that does not fit.
    """
    prompt = _prompt(message, tokenizer, bounds)
    _check_tokens(len(prompt), bounds)
    check_tokens("prompt_token_ids", prompt, bounds.vocab_size)
    check_range("max_tokens", message.max_tokens, 1, bounds.context_length - len(prompt))
    sampling = sampling_from_proto(message.sampling)
    check_range("stop", len(message.stop), 0, MAX_STOPS)
    for index, stop in enumerate(message.stop):
        check_range(f"stop[{index}] characters", len(stop), 1, MAX_STOP_CHARS)
    for field, label in (("class", getattr(message, "class")), ("request_id", message.request_id)):
        if len(label) > MAX_LABEL_CHARS or not label.isprintable():
            raise InvalidArgument(
                f"{field}: {label[:80]!r}, limit {MAX_LABEL_CHARS} printable characters"
            )
    return Request(
        request_id=message.request_id or uuid.uuid4().hex,
        prompt=prompt,
        max_tokens=message.max_tokens,
        sampling=sampling,
        stop=tuple(message.stop),
        ignore_eos=message.ignore_eos,
        class_=getattr(message, "class") or ("greedy" if sampling.greedy else "sampled"),
        speculation=_speculation(message.speculative, bounds, methods),
    )


def _check_tokens(count: int, bounds: Bounds) -> None:
    if count == 0:
        raise InvalidArgument("prompt: 0 tokens, limit at least 1")
    if count >= bounds.context_length:
        raise InvalidArgument(f"prompt: {count} tokens, limit {bounds.context_length - 1}")


def _check_bytes(field: str, count: int, bounds: Bounds) -> None:
    """Refuses text that cannot fit in the context before time is spent on its tokens."""
    if count > bounds.prompt_bytes:
        raise InvalidArgument(f"{field}: {count} bytes, limit {bounds.prompt_bytes}")


def _prompt(message: orchestrator_pb2.GenerateRequest, tokenizer: Any, bounds: Bounds) -> list[int]:
    kind = message.WhichOneof("input")
    if kind == "prompt":
        _check_bytes("prompt", len(message.prompt), bounds)
        return list(tokenizer(_text("prompt", message.prompt))["input_ids"])
    if kind == "prompt_token_ids":
        _check_tokens(len(message.prompt_token_ids.ids), bounds)
        return list(message.prompt_token_ids.ids)
    if kind == "chat":
        whole = sum(len(entry.content) for entry in message.chat.messages)
        _check_bytes("chat.messages content", whole, bounds)
        return _chat(message.chat, tokenizer)
    raise InvalidArgument("prompt: missing; give prompt, prompt_token_ids or chat")


def _chat(chat: orchestrator_pb2.Chat, tokenizer: Any) -> list[int]:
    if not chat.messages:
        raise InvalidArgument("chat.messages: 0 messages, limit at least 1")
    messages = []
    for index, entry in enumerate(chat.messages):
        if entry.role not in ROLES:
            raise InvalidArgument(
                f"chat.messages[{index}].role: {entry.role!r}, limit {', '.join(ROLES)}"
            )
        messages.append(
            {"role": entry.role, "content": _text(f"chat.messages[{index}].content", entry.content)}
        )
    if tokenizer.chat_template is None:
        raise InvalidArgument("chat: the model has no chat template; give prompt instead")
    try:
        encoded = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True
        )
    except TemplateError as error:
        raise InvalidArgument(f"chat.messages: refused by the model's template: {error}") from error
    return list(encoded["input_ids"])


def _text(field: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{field}: invalid UTF-8 at byte {error.start} of {len(data)}"
        ) from error


def _speculation(
    message: orchestrator_pb2.Speculative, bounds: Bounds, methods: Sequence[Method]
) -> Speculation:
    known = {method.name: method for method in methods}
    if message.method and message.method not in (PLAIN, *known):
        raise InvalidArgument(
            f"speculative.method: {message.method!r} is not served; "
            f"limit {', '.join((PLAIN, *known))}"
        )
    default = known.get(AUTO, next(iter(known.values()), None))
    method = known.get(message.method) if message.method else default
    recommended = 0 if method is None else min(method.recommended_depth, bounds.max_depth)
    depth = message.n_max if message.HasField("n_max") else recommended
    check_range("speculative.n_max", depth, 0, bounds.max_depth)
    least = message.n_min if message.HasField("n_min") else 0
    check_range("speculative.n_min", least, 0, depth)
    wide = 0 if method is None else min(method.recommended_nodes, bounds.max_nodes)
    nodes = message.nodes_max if message.HasField("nodes_max") else max(depth, wide)
    check_range("speculative.nodes_max", nodes, depth, bounds.max_nodes)
    check_range("speculative.p_min", message.p_min, 0, 1)
    off = message.method == PLAIN or (message.HasField("enabled") and not message.enabled)
    exact = message.tree_exact if message.HasField("tree_exact") else True
    if off or depth == 0 or method is None:
        return Speculation("", 0, 0, 0, 0.0, exact)
    return Speculation(method.name, least, depth, nodes, message.p_min, exact)
