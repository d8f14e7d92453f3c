"""Feature rows of the target: which rows come, when, and in what messages."""

import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest
import torch
from target_server import (
    VOCAB,
    Server,
    SteeredModel,
    Stream,
    commit,
    free_run,
    greedy,
    open_message,
    serving,
    verify,
)

from outrider.serving.wire import support_to_proto
from outrider.v1 import target_pb2, types_pb2
from tests.tiny import tiny_llama, tiny_model

PROMPT = [int(token) for token in np.random.default_rng(3).integers(0, VOCAB, 150)]
TAPS = (2, 0, 1)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(prefill_rows=16) as it:
        yield it


@pytest.fixture(scope="module")
def reference() -> list[torch.Tensor]:
    """transformers' own hidden states [rows, taps x hidden] of the prompt and the text behind
    it."""
    ids = torch.tensor([PROMPT + greedy(PROMPT, 30)])
    with torch.no_grad():
        states = tiny_model(vocab=VOCAB)(ids, output_hidden_states=True).hidden_states
    return torch.cat([states[tap][0] for tap in TAPS], dim=-1)


def rows_of(features: types_pb2.Features) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(features.data), dtype=torch.bfloat16)
    return flat.view(features.rows, features.width).float()


def assert_rows(features: types_pb2.Features, start: int, expected: torch.Tensor) -> None:
    assert (features.start, features.rows) == (start, expected.shape[0])
    torch.testing.assert_close(rows_of(features), expected, rtol=0.01, atol=0.01)


async def features_before_evidence(
    stream: Stream,
) -> tuple[list[types_pb2.Features], target_pb2.Evidence]:
    parts = []
    while (reply := await stream.read()).WhichOneof("message") == "features":
        parts.append(reply.features)
    return parts, reply.evidence


@pytest.mark.parametrize("window", [0, 1, 5, 20, 1000])
async def test_prompt_features_are_transformers_hidden_states_of_the_window(
    server: Server, reference: torch.Tensor, window: int
) -> None:
    stream = server.stream()
    await stream.send(
        open=open_message(PROMPT, features=types_pb2.FeatureSpec(taps=TAPS, window=window))
    )
    parts, evidence = await features_before_evidence(stream)
    start = max(0, len(PROMPT) - window) if window else 0
    got = [*parts, evidence.features]
    assert got[0].start == start
    for before, after in itertools.pairwise(got):
        assert after.start == before.start + before.rows
    rows = torch.cat([rows_of(part) for part in got])
    torch.testing.assert_close(rows, reference[start : len(PROMPT)], rtol=0.01, atol=0.01)


async def test_features_of_a_tree_are_those_of_the_walked_nodes(
    server: Server, reference: torch.Tensor
) -> None:
    expected = greedy(PROMPT, 8)
    wrong = next(t for t in range(VOCAB) if t not in expected)
    stream, token = await server.opened(PROMPT, features=types_pb2.FeatureSpec(taps=TAPS, window=1))
    at = len(PROMPT) + 1
    tokens = [wrong, expected[1], expected[2], wrong]
    await stream.send(verify=verify(1, at, token, commit(token), tokens, [0, 0, 2, 3]))
    parts, evidence = await features_before_evidence(stream)
    assert not parts
    assert list(evidence.walked) == [0, 2, 3]
    assert_rows(evidence.features, at - 1, reference[at - 1 : at + 2])


async def test_features_under_rejection_are_those_of_all_nodes(server: Server) -> None:
    spec = types_pb2.FeatureSpec(taps=TAPS, window=1)
    stream, token = await server.opened(PROMPT, temperature=1.0, features=spec)
    at = len(PROMPT) + 1
    await stream.send(
        verify=verify(1, at, token, commit(token), [5, 6], [0, 0], [support_to_proto(0, [5, 6])])
    )
    evidence = await stream.evidence()
    assert list(evidence.walked) == [0, 1, 2]
    assert (evidence.features.start, evidence.features.rows) == (at - 1, 3)


async def assert_rows_behind_a_run(
    stream: Stream, tokens: int, expected: list[int], reference: torch.Tensor
) -> None:
    """The first round behind a free run of `tokens` brings the rows of its root and its node."""
    at = len(PROMPT) + 1 + tokens
    await stream.send(verify=verify(2, at, expected[tokens], None, [expected[tokens + 1]]))
    parts, evidence = await features_before_evidence(stream)
    assert parts == []
    assert_rows(evidence.features, at - 1, reference[at - 1 : at + 1])


async def test_rows_of_a_free_run_come_with_its_tokens(
    server: Server, reference: torch.Tensor
) -> None:
    expected = greedy(PROMPT, 8)
    stream, token = await server.opened(PROMPT, features=types_pb2.FeatureSpec(taps=TAPS, window=1))
    at = len(PROMPT) + 1
    await stream.send(free_run=free_run(1, at, token, commit(token), max_tokens=4))
    for row in range(at - 1, at + 3):
        message = (await stream.read()).free_run_tokens
        assert list(message.tokens) == expected[row - at + 2 : row - at + 3]
        assert_rows(message.features, row, reference[row : row + 1])
    await stream.run()
    await assert_rows_behind_a_run(stream, 4, expected, reference)


async def test_features_left_for_later_come_from_the_step_on_that_asks_for_them(
    server: Server, reference: torch.Tensor
) -> None:
    expected = greedy(PROMPT, 24)
    stream = server.stream()
    spec = types_pb2.FeatureSpec(taps=TAPS)
    opening = open_message(PROMPT, features=spec)
    opening.features_later = True
    await stream.send(open=opening)
    parts, evidence = await features_before_evidence(stream)
    assert not parts
    assert not evidence.HasField("features")
    at, token = len(PROMPT) + 1, expected[0]
    await stream.send(free_run=free_run(1, at, token, commit(token), max_tokens=20))
    assert not (await stream.read()).free_run_tokens.HasField("features")
    await stream.send(acknowledge=target_pb2.Acknowledge(features=True))
    told = [(await stream.read()).free_run_tokens for _ in range(19)]
    rows = [message for message in told if message.HasField("features")]
    assert len(rows) >= 10
    assert told[-len(rows) :] == rows  # all from the first one on
    for message in rows:
        row = message.base_len - 2
        assert_rows(message.features, row, reference[row : row + 1])
    await stream.run()
    await assert_rows_behind_a_run(stream, 20, expected, reference)


async def test_asking_for_features_that_were_never_named_changes_nothing(server: Server) -> None:
    stream, token = await server.opened(PROMPT)
    run = free_run(1, len(PROMPT) + 1, token, commit(token), max_tokens=4)
    await stream.send(free_run=run)
    await stream.send(acknowledge=target_pb2.Acknowledge(features=True))
    for _ in range(4):
        assert not (await stream.read()).free_run_tokens.HasField("features")


async def test_a_free_run_sends_no_rows_where_none_are_wanted(server: Server) -> None:
    stream, token = await server.opened(PROMPT)
    run = free_run(1, len(PROMPT) + 1, token, commit(token), max_tokens=2)
    await stream.send(free_run=run)
    assert not (await stream.read()).free_run_tokens.HasField("features")


async def test_feature_messages_hold_at_most_one_mebibyte() -> None:
    torch.set_num_threads(1)
    wide = tiny_llama(VOCAB, layers=1, hidden=2048)
    async with serving(SteeredModel(wide), prefill_rows=512) as server:
        stream = server.stream()
        await stream.send(open=open_message([1] * 250, features=types_pb2.FeatureSpec(taps=[0, 1])))
        parts, evidence = await features_before_evidence(stream)
        assert [part.start + part.rows for part in parts][-1] == evidence.features.start
        assert sum(part.rows for part in parts) == 249
        assert evidence.features.rows == 1
        assert 1000 << 10 < max(len(part.data) for part in parts) <= 1 << 20
