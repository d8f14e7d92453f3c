"""What a target refuses, with which status and which words."""

import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from target_server import (
    CONTEXT,
    VOCAB,
    Server,
    commit,
    open_message,
    serving,
    verify,
)

from outrider.serving.wire import support_to_proto
from outrider.v1 import types_pb2

INVALID, STALE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(max_nodes=8, max_support=8) as it:
        yield it


def taps(*layers: int) -> types_pb2.FeatureSpec:
    return types_pb2.FeatureSpec(taps=layers)


BAD_OPENS: dict[str, tuple[dict[str, Any], str]] = {
    "verify first": (
        {"verify": verify(1, 3, 3)},
        "message: the first one of a stream must be open",
    ),
    "nothing first": ({}, "message: the first one of a stream must be open"),
    "empty prompt": ({"open": open_message([])}, "prompt_ids: 0 tokens, limit at least 1"),
    "token out of range": (
        {"open": open_message([1, VOCAB])},
        "prompt_ids[1]: token 64, limit 0 to 63",
    ),
    "no tokens wanted": (
        {"open": open_message(max_tokens=0)},
        f"max_tokens: 0, limit 1 to {CONTEXT}",
    ),
    "over the context": (
        {"open": open_message([1] * (CONTEXT - 8), max_tokens=9)},
        f"prompt_ids + max_tokens: {CONTEXT + 1}, limit 2 to {CONTEXT}",
    ),
    "NaN temperature": (
        {"open": open_message(temperature=math.nan)},
        "sampling.temperature: nan, limit at",
    ),
    "temperature below 0": (
        {"open": open_message(temperature=-0.5)},
        "sampling.temperature: -0.5, limit at",
    ),
    "infinite temperature": (
        {"open": open_message(temperature=math.inf)},
        "sampling.temperature: inf",
    ),
    "top_p of 0": (
        {"open": open_message(top_p=0.0)},
        "sampling.top_p: 0.0, limit above 0, at most 1",
    ),
    "top_p over 1": (
        {"open": open_message(top_p=1.5)},
        "sampling.top_p: 1.5, limit above 0, at most 1",
    ),
    "NaN top_p": ({"open": open_message(top_p=math.nan)}, "sampling.top_p: nan"),
    "min_p over 1": ({"open": open_message(min_p=1.5)}, "sampling.min_p: 1.5, limit 0 to 1"),
    "tap out of range": (
        {"open": open_message(features=taps(1, 3))},
        "features.taps: 3, limit 0 to 2",
    ),
    "no taps": ({"open": open_message(features=taps())}, "features.taps: number: 0, limit 1 to 3"),
    "a tap twice": (
        {"open": open_message(features=taps(1, 1))},
        "features.taps: a layer occurs twice",
    ),
}


@pytest.mark.parametrize(("message", "expected"), BAD_OPENS.values(), ids=BAD_OPENS.keys())
async def test_bad_open_is_an_invalid_argument_that_names_its_limit(
    server: Server, message: dict[str, Any], expected: str
) -> None:
    stream = server.stream()
    await stream.send(**message)
    code, details = await stream.status()
    assert code is INVALID
    assert expected in details
    assert await server.live(0)


# Behind a prefill of [1, 2, 3] that drew token 9: base_len 4, root 9.
BAD_TREES: dict[str, tuple[dict[str, Any], str]] = {
    "parent behind its child": (
        {"tokens": [5, 6], "parents": [2, 0]},
        "tree.parents: node 1 has parent 2, limit 0 to 0",
    ),
    "own parent": (
        {"tokens": [5], "parents": [1]},
        "tree.parents: node 1 has parent 1, limit 0 to 0",
    ),
    "equal siblings": (
        {"tokens": [5, 5], "parents": [0, 0]},
        "tree.tokens: token 5 occurs twice below node 0",
    ),
    "lengths differ": ({"tokens": [5, 6], "parents": [0]}, "tree.parents: 2 entries for 3 tokens"),
    "too many nodes": ({"tokens": range(9)}, "tree nodes: 9, limit 0 to 8"),
    "token out of range": ({"tokens": [5, VOCAB]}, "tree.tokens[1]: token 64, limit 0 to 63"),
}


@pytest.mark.parametrize(("tree", "expected"), BAD_TREES.values(), ids=BAD_TREES.keys())
async def test_bad_tree_is_an_invalid_argument(
    server: Server, tree: dict[str, Any], expected: str
) -> None:
    stream, token = await server.opened()
    await stream.send(verify=verify(1, 4, token, commit(token), **tree))
    code, details = await stream.status()
    assert code is INVALID
    assert expected in details
    assert await server.live(0)


BAD_SUPPORTS = {
    "no such node": ([support_to_proto(3, [5])], "supports.node: 3, limit 0 to 2"),
    "no children": ([support_to_proto(2, [5])], "supports: node 2 has 0 children"),
    "child outside": (
        [support_to_proto(0, [4])],
        "supports: node 0 has 1 children, of which [5] are not in",
    ),
    "id out of range": ([support_to_proto(0, [5, VOCAB])], "support.ids: 64, limit 0 to 63"),
    "too many ids": ([support_to_proto(0, list(range(9)))], "support.ids: 9, limit 1 to 8"),
    "no ids": ([types_pb2.Support(node=0)], "support.ids: 0, limit 1 to 8"),
    "repeated id": (
        [types_pb2.Support(node=0, id_deltas=[5, 0])],
        "support.id_deltas: 0 below node 0",
    ),
    "node twice": (
        [support_to_proto(0, [5]), support_to_proto(0, [5, 6])],
        "supports.node: 0 occurs twice",
    ),
}


@pytest.mark.parametrize(("supports", "expected"), BAD_SUPPORTS.values(), ids=BAD_SUPPORTS.keys())
async def test_bad_support_is_an_invalid_argument(
    server: Server, supports: list[types_pb2.Support], expected: str
) -> None:
    stream, token = await server.opened(temperature=1.0)
    await stream.send(verify=verify(1, 4, token, commit(token), [5, 6], supports=supports))
    code, details = await stream.status()
    assert code is INVALID
    assert expected in details


async def test_node_with_children_from_q_and_others_is_refused(server: Server) -> None:
    stream, token = await server.opened(temperature=1.0)
    request = verify(
        1, 4, token, commit(token), [5, 6], [0, 0], supports=[support_to_proto(0, [5, 7])]
    )
    await stream.send(verify=request)
    code, details = await stream.status()
    assert code is INVALID
    assert "node 0 has 2 children, of which [6] are not in its ids" in details


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7}])
async def test_greedy_and_seeded_sessions_take_no_drawn_children(
    server: Server, sampling: dict[str, Any]
) -> None:
    stream, token = await server.opened(**sampling)
    await stream.send(
        verify=verify(1, 4, token, commit(token), [5], supports=[support_to_proto(0, [5])])
    )
    code, details = await stream.status()
    assert code is INVALID
    assert "supports: a greedy or seeded session" in details
