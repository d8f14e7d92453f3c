from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.round import (
    Budget,
    Commit,
    Evidence,
    Features,
    Load,
    NodeEvidence,
    Proposal,
    SamplingParams,
    TruncatedDistribution,
)
from outrider.core.tree import TokenTree, TreeBuilder
from outrider.serving import wire, wire_rounds
from outrider.v1 import draft_pb2, target_pb2, types_pb2

VOCAB = 1000
MAX_M = 16
U32 = st.integers(0, 2**32 - 1)
WIDTH32: Any = {"width": 32}


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    builder = TreeBuilder(draw(st.integers(0, VOCAB - 1)))
    for parent, token in draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, VOCAB - 1)), max_size=20)
    ):
        builder.add(min(parent, len(builder) - 1), token)
    return builder.build()


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    tree = draw(trees())
    drawn_from = {}
    for node, children in enumerate(tree.children):
        if children and len(children) <= MAX_M and draw(st.booleans()):
            others = draw(st.sets(st.integers(0, VOCAB - 1), max_size=MAX_M - len(children)))
            ids = np.array(sorted({tree.tokens[child] for child in children} | others))
            weight = st.floats(2**-40, 1.0, **WIDTH32)
            weights = draw(st.lists(weight, min_size=ids.size, max_size=ids.size))
            drawn_from[node] = TruncatedDistribution(ids, np.array(weights, dtype=np.float32))
    return Proposal(
        tree, draw(st.sampled_from(["ngram", "draft_model"])), drawn_from, draw(U32), draw(U32)
    )


def same(one: TruncatedDistribution, other: TruncatedDistribution) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(
        one.probabilities, other.probabilities
    )


@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 1e6),
        top_k=U32,
        top_p=st.floats(0, 1, exclude_min=True),
        min_p=st.floats(0, 1),
        seed=st.none() | st.integers(0, 2**64 - 1),
        choice=U32,
    )
)
def test_sampling_survives_the_wire(params: SamplingParams) -> None:
    message = types_pb2.SamplingParams.FromString(
        wire.sampling_to_proto(params).SerializeToString()
    )
    assert wire.sampling_from_proto(message) == params


def test_absent_sampling_fields_mean_off_and_zero_means_zero() -> None:
    assert wire.sampling_from_proto(types_pb2.SamplingParams()) == SamplingParams()
    assert wire.sampling_from_proto(
        types_pb2.SamplingParams(temperature=0.0, seed=0)
    ) == SamplingParams(0.0, seed=0)


@given(proposals(), st.sampled_from(["ngram", "draft_model"]))
def test_proposal_survives_the_wire_with_q_to_the_bit(
    proposal: Proposal, session_method: str
) -> None:
    data = wire_rounds.proposal_to_proto(3, 70, proposal, session_method).SerializeToString()
    message = draft_pb2.Proposal.FromString(data)
    assert (message.round, message.base_len) == (3, 70)
    back = wire_rounds.proposal_from_proto(
        message, proposal.tree.tokens[0], session_method, VOCAB, MAX_M
    )
    assert (back.tree, back.method) == (proposal.tree, proposal.method)
    assert (back.draft_us, back.queue_us) == (proposal.draft_us, proposal.queue_us)
    assert back.drawn_from.keys() == proposal.drawn_from.keys()
    assert all(same(back.drawn_from[node], q) for node, q in proposal.drawn_from.items())


@given(proposals(), st.data())
def test_evidence_survives_the_wire(proposal: Proposal, data: st.DataObject) -> None:
    supports = {node: q.ids.size for node, q in proposal.drawn_from.items()}
    share = st.floats(0, 1, **WIDTH32)
    nodes = {
        node: NodeEvidence(
            np.array(data.draw(st.lists(share, min_size=m, max_size=m))), data.draw(share)
        )
        for node, m in supports.items()
    }
    samples = data.draw(
        st.lists(
            st.integers(-1, VOCAB - 1), min_size=len(proposal.tree), max_size=len(proposal.tree)
        )
    )
    evidence = Evidence(
        tuple(samples), nodes, 5, 6, Load(1, 2, 3), Features(4, 2, 1, b"abcd"), (0, 2)
    )
    sent = wire_rounds.evidence_to_proto(1, 9, evidence, list(supports)).SerializeToString()
    back = wire_rounds.evidence_from_proto(target_pb2.Evidence.FromString(sent), supports)
    assert (back.samples, back.load, back.features, back.walked) == (
        evidence.samples,
        evidence.load,
        evidence.features,
        evidence.walked,
    )
    assert (back.queue_us, back.forward_us) == (5, 6)
    assert back.nodes.keys() == nodes.keys()
    for node, expected in nodes.items():
        assert back.nodes[node].probabilities.tolist() == expected.probabilities.tolist()
        assert back.nodes[node].outside == expected.outside


@given(st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=MAX_M), st.integers(0, 40))
def test_support_survives_the_wire(ids: set[int], node: int) -> None:
    message = wire.support_to_proto(node, sorted(ids))
    assert message.node == node
    assert wire.support_from_proto(message, VOCAB, MAX_M).tolist() == sorted(ids)


@given(st.lists(U32, max_size=9), U32)
def test_commit_survives_the_wire(accepted: list[int], emitted: int) -> None:
    commit = Commit(tuple(accepted), emitted)
    assert wire.commit_from_proto(wire.commit_to_proto(commit)) == commit


@given(
    st.integers(0, 8),
    st.integers(0, 64),
    st.integers(1, 32),
    st.integers(0, 10**6),
    st.tuples(st.floats(0, 1, **WIDTH32), *[st.floats(0, 9, **WIDTH32)] * 2),
)
def test_budget_survives_the_wire(
    depth: int, nodes: int, m: int, time_left_ms: int, least: tuple[float, float, float]
) -> None:
    budget = Budget(depth, nodes, m, time_left_ms / 1000, *least)
    back = wire_rounds.budget_from_proto(wire_rounds.budget_to_proto(budget), 8, 64, 32)
    assert (back.depth, back.nodes, back.m) == (depth, nodes, m)
    assert (back.p_min, back.least_node, back.least_level) == least
    assert back.time_left_s == pytest.approx(budget.time_left_s, abs=0.0011)


def test_features_and_load_survive_the_wire() -> None:
    features = Features(17, 3, 2, bytes(range(12)))
    assert wire.features_from_proto(wire.features_to_proto(features)) == features
    assert wire.load_from_proto(wire.load_to_proto(Load(4, 5, 6))) == Load(4, 5, 6)


def test_no_more_bytes_than_a_chain_may_cost() -> None:
    """60 a drafted node and 150 a round under Match, 480 and 150 under Rejection with m = 32."""
    tree = TokenTree.chain(49_000, [48_000, 47_000, 46_000, 45_000])
    ids = np.arange(32) * 1500
    drawn = {node: TruncatedDistribution(ids, np.full(32, 0.03, np.float32)) for node in range(4)}
    evidence = {node: NodeEvidence(np.full(32, 0.01), 0.3) for node in drawn}
    match = _round_bytes(Proposal(tree, "draft_model"), Evidence((49_000,) * 5))
    rejection = _round_bytes(
        Proposal(tree, "draft_model", drawn), Evidence((49_000,) * 5, evidence)
    )
    assert match <= 60 * 4 + 150
    assert rejection <= 480 * 4 + 150
    assert rejection > 4 * 32 * 8


def _round_bytes(proposal: Proposal, evidence: Evidence) -> int:
    supports = proposal.drawn_from
    request = target_pb2.VerifyRequest(
        round=300,
        base_len=2000,
        commit=wire.commit_to_proto(Commit((1, 2, 3, 4), 48_000)),
        root=proposal.tree.tokens[0],
        tree=wire.tree_to_proto(proposal.tree),
        supports=[wire.support_to_proto(node, q.ids) for node, q in supports.items()],
    )
    draft = draft_pb2.DraftRequest(
        round=300,
        base_len=2000,
        new_tokens=[48_000] * 5,
        budget=wire_rounds.budget_to_proto(Budget(4, 4)),
    )
    messages = [
        draft,
        wire_rounds.proposal_to_proto(300, 2000, proposal, "draft_model"),
        request,
        wire_rounds.evidence_to_proto(300, 2000, evidence, list(supports)),
    ]
    return sum(message.ByteSize() for message in messages)
