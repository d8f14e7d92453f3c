import math
from typing import Any

import pytest

from outrider.serving import wire, wire_rounds
from outrider.serving.errors import InvalidArgument
from outrider.v1 import draft_pb2, target_pb2, types_pb2

VOCAB = 1000
MAX_M = 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.5}, r"sampling\.temperature: -0\.5, limit at least 0 and finite"),
        ({"temperature": math.nan}, r"sampling\.temperature: nan"),
        ({"temperature": math.inf}, r"sampling\.temperature: inf"),
        ({"top_p": 0.0}, r"sampling\.top_p: 0\.0, limit above 0, at most 1"),
        ({"top_p": 1.5}, r"sampling\.top_p: 1\.5"),
        ({"top_p": math.nan}, r"sampling\.top_p: nan"),
        ({"min_p": -0.1}, r"sampling\.min_p: -0\.1, limit 0 to 1"),
        ({"min_p": math.nan}, r"sampling\.min_p: nan"),
    ],
)
def test_sampling_out_of_range_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wire.sampling_from_proto(types_pb2.SamplingParams(**fields))


def drawn(node: int, deltas: list[int], weights: list[float]) -> types_pb2.DrawnFrom:
    return types_pb2.DrawnFrom(
        support=types_pb2.Support(node=node, id_deltas=deltas), probabilities=weights
    )


CHAIN = types_pb2.Tree(tokens=[5, 6], parents=[0, 1])


@pytest.mark.parametrize(
    ("tree", "drawn_from", "message"),
    [
        (types_pb2.Tree(tokens=[5], parents=[]), [], r"tree\.parents: 1 entries for 2 tokens"),
        (
            types_pb2.Tree(tokens=[5, 6], parents=[2, 0]),
            [],
            r"tree\.parents: node 1 has parent 2, limit 0 to 0",
        ),
        (
            types_pb2.Tree(tokens=[5, 5], parents=[0, 0]),
            [],
            r"tree\.tokens: token 5 occurs twice below node 0",
        ),
        (
            types_pb2.Tree(tokens=[VOCAB], parents=[0]),
            [],
            r"proposal\.tree\.tokens\[1\]: token 1000, limit 0 to 999",
        ),
        (CHAIN, [drawn(3, [5], [1.0])], r"proposal\.drawn_from\.node: 3, limit 0 to 2"),
        (CHAIN, [drawn(2, [5], [1.0])], r"proposal\.drawn_from: .*node 2"),
        (
            CHAIN,
            [drawn(0, [6], [1.0])],
            r"proposal\.drawn_from: node 0 has 1 children, .* not in it: \[5\]",
        ),
        (
            CHAIN,
            [drawn(0, [5, 1], [1.0])],
            r"proposal\.drawn_from: node 0 needs 2 finite weights above 0",
        ),
        (CHAIN, [drawn(0, [5, 1], [1.0, 0.0])], "needs 2 finite weights above 0"),
        (CHAIN, [drawn(0, [5, 1], [1.0, -1.0])], "needs 2 finite weights above 0"),
        (CHAIN, [drawn(0, [5, 1], [1.0, math.nan])], "needs 2 finite weights above 0"),
        (CHAIN, [drawn(0, [5, 1], [1.0, math.inf])], "needs 2 finite weights above 0"),
        (CHAIN, [drawn(0, [], [])], r"support\.ids: 0, limit 1 to 16"),
        (CHAIN, [drawn(0, [1] * 17, [1.0] * 17)], r"support\.ids: 17, limit 1 to 16"),
        (
            CHAIN,
            [drawn(0, [5, 0], [1.0, 1.0])],
            r"support\.id_deltas: 0 below node 0, limit at least 1",
        ),
        (CHAIN, [drawn(0, [5, 995], [1.0, 1.0])], r"support\.ids: 1000, limit 0 to 999"),
    ],
)
def test_a_faulty_proposal_is_refused(
    tree: types_pb2.Tree, drawn_from: list[types_pb2.DrawnFrom], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wire_rounds.proposal_from_proto(
            draft_pb2.Proposal(tree=tree, drawn_from=drawn_from), 1, "ngram", VOCAB, MAX_M
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 9, "nodes": 4, "m": 4}, r"budget\.depth: 9, limit 0 to 8"),
        ({"depth": 1, "nodes": 65, "m": 4}, r"budget\.nodes: 65, limit 0 to 64"),
        ({"depth": 1, "nodes": 4, "m": 0}, r"budget\.m: 0, limit 1 to 32"),
        ({"depth": 1, "nodes": 4, "m": 33}, r"budget\.m: 33, limit 1 to 32"),
        ({"depth": 1, "nodes": 4, "m": 4, "p_min": 1.5}, r"budget\.p_min: 1\.5, limit 0 to 1"),
        ({"depth": 1, "nodes": 4, "m": 4, "p_min": math.nan}, r"budget\.p_min: nan"),
    ],
)
def test_a_budget_over_its_limits_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wire_rounds.budget_from_proto(draft_pb2.Budget(**fields), 8, 64, 32)


def test_feature_bytes_must_fill_their_rows() -> None:
    with pytest.raises(InvalidArgument, match=r"features\.data: 5 bytes, limit 2 x 3 rows x 1"):
        wire.features_from_proto(types_pb2.Features(rows=3, width=1, data=b"12345"))


@pytest.mark.parametrize(
    "message",
    [
        target_pb2.Evidence(samples=[1], probabilities=[0.5], outside=[0.5]),
        target_pb2.Evidence(samples=[1], probabilities=[0.5, 0.2], outside=[]),
        target_pb2.Evidence(samples=[1], probabilities=[0.5, 0.2], outside=[0.1, 0.1]),
    ],
)
def test_evidence_for_other_supports_is_refused(message: target_pb2.Evidence) -> None:
    with pytest.raises(InvalidArgument, match=r"limit 1 and 2"):
        wire_rounds.evidence_from_proto(message, {0: 2})


@pytest.mark.parametrize(("tokens", "index"), [([1, VOCAB], 1), ([-1], 0)])
def test_tokens_outside_the_vocabulary_are_refused(tokens: list[int], index: int) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"prompt\[{index}\]: token {tokens[index]}, limit 0 to 999"
    ):
        wire.check_tokens("prompt", tokens, VOCAB)
