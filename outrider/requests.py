"""How the SDK's arguments become a request. Only what cannot be put on the wire is refused here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from outrider.exceptions import InvalidRequest
from outrider.v1 import orchestrator_pb2

DEFAULT_MAX_TOKENS = 128
SPECULATIVE_KEYS = tuple(orchestrator_pb2.Speculative.DESCRIPTOR.fields_by_name)
ELSEWHERE_CALLED = {
    "k": "n_max",
    "num_speculative_tokens": "n_max",
    "draft_tokens": "n_max",
    "drafter": "method",
}

LIMITS = {
    FieldDescriptor.TYPE_INT32: (0, 2**31 - 1),  # no request has a use for negative ones
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


class Options(TypedDict, total=False):
    """Arguments that every kind of generation takes.

    max_tokens: most tokens to generate; default 128.
    temperature (default 1.0; 0 is greedy), top_k (0 is off), top_p (1.0 is off), min_p (0.0 is
        off): as in
        transformers.
    seed: the text is then a function of seed, prompt and target; 64 bits, unsigned.
    stop: the text ends before the first of these.
    ignore_eos: go on behind the end-of-sequence token.
    speculative: method (plain is off), n_max (greatest depth; 0 is off), n_min (n_min = n_max is
        a fixed K), nodes_max, p_min, enabled, tree_exact; absent keys take the server's defaults.
    request_class: label under which the server keeps statistics.
    request_id: chosen by the server by default.
    """

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    stop: str | Sequence[str] | None
    ignore_eos: bool
    speculative: Mapping[str, Any] | None
    request_class: str | None
    request_id: str | None


def text_request(
    prompt: str | None, prompt_token_ids: Sequence[int] | None, **options: Unpack[Options]
) -> orchestrator_pb2.GenerateRequest:
    """A request from raw text or from token ids.

    Raises:
        InvalidRequest: not exactly one of the two is given, or a value does not fit its field.
    """
    if (prompt is None) == (prompt_token_ids is None):
        raise InvalidRequest("prompt, prompt_token_ids: give exactly one of them")
    request = orchestrator_pb2.GenerateRequest()
    if prompt is not None:
        request.prompt = _utf8("prompt", prompt)
    else:
        request.prompt_token_ids.SetInParent()
        _extend(request.prompt_token_ids, "ids", prompt_token_ids, "prompt_token_ids")
    return _with_options(request, options)


def chat_request(
    messages: Sequence[Mapping[str, str]], **options: Unpack[Options]
) -> orchestrator_pb2.GenerateRequest:
    """A request from chat messages, each with `role` and `content`.

    Raises:
        InvalidRequest: a message lacks one of them, or a value does not fit its field.
    """
    request = orchestrator_pb2.GenerateRequest()
    request.chat.SetInParent()
    for index, message in enumerate(messages):
        name = f"messages[{index}]"
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise InvalidRequest(f"{name}: must have the keys role and content and no others")
        added = request.chat.messages.add(content=_utf8(f"{name}.content", message["content"]))
        _put(added, "role", message["role"], f"{name}.role")
    return _with_options(request, options)


def _with_options(
    request: orchestrator_pb2.GenerateRequest, options: Options
) -> orchestrator_pb2.GenerateRequest:
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise TypeError(
            f"unknown argument {unknown[0]!r}; known are {', '.join(Options.__annotations__)}"
        )
    _put(request, "max_tokens", given.get("max_tokens", DEFAULT_MAX_TOKENS))
    _put(request.sampling, "temperature", given.get("temperature", 1.0))
    for name in ("top_k", "top_p", "min_p", "seed"):
        if name in given:
            _put(request.sampling, name, given[name])
    stop = given.get("stop", ())
    _extend(request, "stop", [stop] if isinstance(stop, str) else stop, "stop")
    for argument, name in (
        ("ignore_eos", "ignore_eos"),
        ("request_class", "class"),
        ("request_id", "request_id"),
    ):
        if argument in given:
            _put(request, name, given[argument], argument)
    if "speculative" in given:
        request.speculative.SetInParent()
        _speculative(request.speculative, given["speculative"])
    return request


def _speculative(message: orchestrator_pb2.Speculative, values: Mapping[str, Any]) -> None:
    if not isinstance(values, Mapping):
        raise InvalidRequest(f"speculative: {values!r} is not a mapping")
    for key, value in values.items():
        if key not in SPECULATIVE_KEYS:
            close = difflib.get_close_matches(str(key), SPECULATIVE_KEYS, n=1)
            meant = ELSEWHERE_CALLED.get(str(key)) or (close[0] if close else None)
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise InvalidRequest(
                f"speculative: unknown key {key!r}; "
                f"known keys are {', '.join(SPECULATIVE_KEYS)}{hint}"
            )
        if value is not None:
            _put(message, key, value, f"speculative.{key}")


def _utf8(name: str, text: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidRequest(f"{name}: {type(text).__name__} is not str")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{name}: character {error.start} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}, which UTF-8 cannot carry"
        ) from error


def _put(message: Message, name: str, value: Any, shown: str | None = None) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as error:
        low, high = LIMITS.get(message.DESCRIPTOR.fields_by_name[name].type, (0, -1))
        if isinstance(value, int) and low <= high:
            raise InvalidRequest(f"{shown or name}: {value}, limit {low} to {high}") from error
        raise InvalidRequest(f"{shown or name}: {value!r} does not fit: {error}") from error


def _extend(message: Message, name: str, values: Any, shown: str) -> None:
    try:
        getattr(message, name).extend(values)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{shown}: {_first_bad(message, name, values)}: {error}") from error


def _first_bad(message: Message, name: str, values: Any) -> str:
    if isinstance(values, Sequence):
        for index, value in enumerate(values):
            try:
                getattr(type(message)(), name).append(value)
            except (TypeError, ValueError):
                return f"entry {index}, {value!r}, does not fit"
    return f"{values!r} is not a list"
