"""Between protobuf messages and the types of `outrider.core`: budgets, proposals, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from outrider.core.round import Budget, Evidence, NodeEvidence, Proposal, TruncatedDistribution
from outrider.serving.errors import InvalidArgument
from outrider.serving.wire import (
    check_range,
    check_tokens,
    features_from_proto,
    features_to_proto,
    load_from_proto,
    load_to_proto,
    support_from_proto,
    support_to_proto,
    tree_from_proto,
    tree_to_proto,
)
from outrider.v1 import draft_pb2, target_pb2, types_pb2


def budget_to_proto(budget: Budget) -> draft_pb2.Budget:
    """The message for what a proposal may cost."""
    return draft_pb2.Budget(
        depth=budget.depth,
        nodes=budget.nodes,
        m=budget.m,
        time_left_ms=max(0, int(budget.time_left_s * 1000)),
        p_min=budget.p_min,
        least_node=budget.least_node,
        least_level=budget.least_level,
    )


def budget_from_proto(
    message: draft_pb2.Budget, max_depth: int, max_nodes: int, max_m: int
) -> Budget:
    """A checked budget.

    Raises:
        InvalidArgument: a field over its limit.
    """
    check_range("budget.depth", message.depth, 0, max_depth)
    check_range("budget.nodes", message.nodes, 0, max_nodes)
    check_range("budget.m", message.m, 1, max_m)
    check_range("budget.p_min", message.p_min, 0, 1)
    check_range("budget.least_node", message.least_node, 0, inf)
    check_range("budget.least_level", message.least_level, 0, inf)
    return Budget(
        message.depth,
        message.nodes,
        message.m,
        message.time_left_ms / 1000,
        message.p_min,
        message.least_node,
        message.least_level,
    )


def proposal_to_proto(
    round_: int, base_len: int, proposal: Proposal, session_method: str
) -> draft_pb2.Proposal:
    """The message for a proposal; the method is named only where it is not the session's own."""
    return draft_pb2.Proposal(
        round=round_,
        base_len=base_len,
        method="" if proposal.method == session_method else proposal.method,
        tree=tree_to_proto(proposal.tree),
        drawn_from=[
            types_pb2.DrawnFrom(support=support_to_proto(node, q.ids), probabilities=q.weights)
            for node, q in proposal.drawn_from.items()
        ],
        draft_us=proposal.draft_us,
        queue_us=proposal.queue_us,
        prefill_us=proposal.prefill_us,
    )


def proposal_from_proto(
    message: draft_pb2.Proposal, root: int, session_method: str, vocab_size: int, max_m: int
) -> Proposal:
    """A checked proposal.

    Raises:
        InvalidArgument: no tree, tokens out of range, a node drawn from nothing, or children that
            q~ does not hold.
    """
    tree = tree_from_proto(message.tree, root)
    check_tokens("proposal.tree.tokens", tree.tokens, vocab_size)
    drawn_from: dict[int, TruncatedDistribution] = {}
    for entry in message.drawn_from:
        node = entry.support.node
        check_range("proposal.drawn_from.node", node, 0, len(tree) - 1)
        if node in drawn_from:
            raise InvalidArgument(f"proposal.drawn_from.node: {node} occurs twice")
        ids = support_from_proto(entry.support, vocab_size, max_m)
        weights = np.asarray(entry.probabilities, dtype=np.float32)
        if weights.shape != ids.shape or not np.all(np.isfinite(weights) & (weights > 0)):
            raise InvalidArgument(
                f"proposal.drawn_from: node {node} needs {ids.size} finite weights above 0"
            )
        children = {tree.tokens[child] for child in tree.children[node]}
        strangers = sorted(children - set(ids.tolist()))
        if strangers or not children:
            raise InvalidArgument(
                f"proposal.drawn_from: node {node} has {len(children)} children, limit at least 1; "
                f"those not in it: {strangers}"
            )
        drawn_from[node] = TruncatedDistribution(ids, weights)
    times = message.draft_us, message.queue_us, message.prefill_us
    return Proposal(tree, message.method or session_method, drawn_from, *times)


def evidence_to_proto(
    round_: int, base_len: int, evidence: Evidence, support_nodes: Sequence[int]
) -> target_pb2.Evidence:
    """The message for evidence.

    `support_nodes` is the order in which the request listed its supports.
    """
    probabilities = [evidence.nodes[node].probabilities for node in support_nodes]
    return target_pb2.Evidence(
        round=round_,
        base_len=base_len,
        samples=evidence.samples,
        probabilities=np.concatenate(probabilities) if probabilities else (),
        outside=[evidence.nodes[node].outside for node in support_nodes],
        queue_us=evidence.queue_us,
        forward_us=evidence.forward_us,
        load=load_to_proto(evidence.load),
        features=None if evidence.features is None else features_to_proto(evidence.features),
        walked=evidence.walked,
    )


def evidence_from_proto(message: target_pb2.Evidence, supports: Mapping[int, int]) -> Evidence:
    """Evidence; `supports` has the number of ids of each support, in the order in which they were
    sent.

    Raises:
        InvalidArgument: the arrays do not fit the supports.
    """
    if len(message.outside) != len(supports) or len(message.probabilities) != sum(
        supports.values()
    ):
        raise InvalidArgument(
            f"evidence: {len(message.outside)} supports, "
            f"{len(message.probabilities)} probabilities; "
            f"limit {len(supports)} and {sum(supports.values())}"
        )
    flat = np.asarray(message.probabilities, dtype=np.float64)
    nodes: dict[int, NodeEvidence] = {}
    start = 0
    for (node, size), outside in zip(supports.items(), message.outside, strict=True):
        nodes[node] = NodeEvidence(flat[start : start + size], outside)
        start += size
    return Evidence(
        samples=tuple(message.samples),
        nodes=nodes,
        queue_us=message.queue_us,
        forward_us=message.forward_us,
        load=load_from_proto(message.load),
        features=features_from_proto(message.features) if message.HasField("features") else None,
        walked=tuple(message.walked),
    )
