"""Bad messages to the draft service end their stream with the field, the value and the limit."""

import math
from collections.abc import AsyncIterator

import grpc
import pytest
from draft_server import VOCAB, Server, open_message, request, serving, status

from outrider.v1 import draft_pb2


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as it:
        yield it


BAD_OPENS = {
    "no open first": (request(1, 1), "first of a stream must be open"),
    "unknown method": (
        open_message(method="magic"),
        "open.method: 'magic' is unknown, limit one of steered, slow",
    ),
    "empty prompt": (open_message([]), "open.prompt_ids: length: 0, limit 1 to 64"),
    "prompt over context": (open_message([1] * 65), "open.prompt_ids: length: 65, limit 1 to 64"),
    "token out of range": (
        open_message([1, VOCAB]),
        "open.prompt_ids[1]: token 100, limit 0 to 99",
    ),
    "NaN temperature": (open_message(temperature=math.nan), "sampling.temperature: nan"),
    "negative temperature": (open_message(temperature=-1.0), "sampling.temperature: -1"),
    "top_p of 0": (open_message(top_p=0.0), "sampling.top_p: 0"),
    "empty message": (draft_pb2.DraftMessage(), "first of a stream must be open"),
}


@pytest.mark.parametrize(("message", "expected"), BAD_OPENS.values(), ids=BAD_OPENS.keys())
async def test_bad_open_is_an_invalid_argument_that_names_its_limit(
    server: Server, message: object, expected: str
) -> None:
    call = server.stream()
    await call.write(message)
    code, details = await status(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert expected in details
    assert await server.live(0)


INVALID, STALE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
BAD_REQUESTS = {
    "second open": (open_message(), INVALID, "must be requests"),
    "token out of range": (
        request(2, 5, [VOCAB]),
        INVALID,
        "request.new_tokens[0]: token 100, limit 0 to 99",
    ),
    "depth": (request(2, 4, depth=17), INVALID, "budget.depth: 17, limit 0 to 16"),
    "nodes": (request(2, 4, nodes=65), INVALID, "budget.nodes: 65, limit 0 to 64"),
    "m": (request(2, 4, m=257), INVALID, "budget.m: 257, limit 1 to 256"),
    "NaN p_min": (request(2, 4, p_min=math.nan), INVALID, "budget.p_min: nan, limit 0 to 1"),
    "least_node": (
        request(2, 4, least_node=-1.0),
        INVALID,
        "budget.least_node: -1.0, limit 0 to inf",
    ),
    "NaN least_level": (
        request(2, 4, least_level=math.nan),
        INVALID,
        "budget.least_level: nan, limit 0 to inf",
    ),
    "same round": (request(1, 4), STALE, "request.round: 1, limit above 1"),
    "base_len too small": (request(2, 4, [5]), STALE, "request.base_len: 4, limit 5"),
    "over the context": (request(2, 65, [5] * 61), INVALID, "request.base_len: 65, limit 1 to 64"),
    "base_len too large": (request(2, 6, [5]), STALE, "request.base_len: 6, limit 5"),
}


@pytest.mark.parametrize(
    ("message", "code", "expected"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys()
)
async def test_bad_request_ends_the_stream_with_a_reason(
    server: Server, message: object, code: grpc.StatusCode, expected: str
) -> None:
    call = await server.opened()
    await call.write(request(1, 4, [10]))
    await call.read()
    await call.write(message)
    given, details = await status(call)
    assert given is code
    assert expected in details
    assert await server.live(0)
