"""Between protobuf messages and the types of `outrider.core`.

What does not fit is refused by field, value, limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

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
from outrider.core.tree import TokenTree, TreeError
from outrider.serving.errors import InvalidArgument
from outrider.v1 import draft_pb2, target_pb2, types_pb2

NO_SAMPLE = -1


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidArgument unless low <= value <= high; NaN never passes."""
    if not low <= value <= high:
        raise InvalidArgument(f"{field}: {value:g}, limit {low:g} to {high:g}")


def check_tokens(field: str, tokens: Iterable[int], vocab_size: int) -> None:
    """Raises InvalidArgument for the first token that the vocabulary does not have."""
    for index, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise InvalidArgument(f"{field}[{index}]: token {token}, limit 0 to {vocab_size - 1}")


def sampling_from_proto(message: types_pb2.SamplingParams) -> SamplingParams:
    """Checked sampling parameters; absent fields take transformers' meaning of off.

    Raises:
        InvalidArgument: temperature, top_p or min_p out of range or NaN.
    """
    temperature = message.temperature if message.HasField("temperature") else 1.0
    if not (temperature >= 0.0 and math.isfinite(temperature)):
        raise InvalidArgument(f"sampling.temperature: {temperature:g}, limit at least 0 and finite")
    top_p = message.top_p if message.HasField("top_p") else 1.0
    if not 0.0 < top_p <= 1.0:
        raise InvalidArgument(f"sampling.top_p: {top_p:g}, limit above 0, at most 1")
    if not 0.0 <= message.min_p <= 1.0:
        raise InvalidArgument(f"sampling.min_p: {message.min_p:g}, limit 0 to 1")
    seed = message.seed if message.HasField("seed") else None
    return SamplingParams(temperature, message.top_k, top_p, message.min_p, seed, message.choice)


def sampling_to_proto(params: SamplingParams) -> types_pb2.SamplingParams:
    """The message for `params`."""
    return types_pb2.SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        seed=params.seed,
        choice=params.choice,
    )


def tree_to_proto(tree: TokenTree) -> types_pb2.Tree:
    """The tree without its root."""
    return types_pb2.Tree(tokens=tree.tokens[1:], parents=tree.parents[1:])


def tree_from_proto(message: types_pb2.Tree, root: int) -> TokenTree:
    """The tree with its root.

    Raises:
        InvalidArgument: the arrays are no tree.
    """
    try:
        return TokenTree.from_drafted(root, message.tokens, message.parents)
    except TreeError as error:
        raise InvalidArgument(str(error)) from error


def support_to_proto(node: int, ids: Sequence[int] | np.ndarray) -> types_pb2.Support:
    """The message for ascending ids."""
    return types_pb2.Support(
        node=node, id_deltas=np.diff(np.asarray(ids, dtype=np.int64), prepend=0).tolist()
    )


def support_from_proto(message: types_pb2.Support, vocab_size: int, limit: int) -> np.ndarray:
    """Ids [m], ascending and distinct.

    Raises:
        InvalidArgument: more than `limit` ids, a repeated one, or one that the vocabulary does not
            have.
    """
    deltas = message.id_deltas
    check_range("support.ids", len(deltas), 1, limit)
    if any(delta == 0 for delta in deltas[1:]):
        raise InvalidArgument(
            f"support.id_deltas: 0 below node {message.node}, limit at least 1 behind the first"
        )
    ids = np.cumsum(np.asarray(deltas, dtype=np.int64))
    check_range("support.ids", int(ids[-1]), 0, vocab_size - 1)
    return ids


def commit_to_proto(commit: Commit) -> types_pb2.Commit:
    """The message for a decision."""
    return types_pb2.Commit(accepted=commit.accepted, emitted=commit.emitted)


def commit_from_proto(message: types_pb2.Commit) -> Commit:
    """The decision; whether its nodes form a path is checked against the tree by the engine."""
    return Commit(tuple(message.accepted), message.emitted)


def features_to_proto(features: Features) -> types_pb2.Features:
    """The message for feature rows."""
    return types_pb2.Features(
        start=features.start, rows=features.rows, width=features.width, data=features.data
    )


def features_from_proto(message: types_pb2.Features) -> Features:
    """Feature rows.

    Raises:
        InvalidArgument: data does not hold rows x width bfloat16 values.
    """
    if len(message.data) != 2 * message.rows * message.width:
        raise InvalidArgument(
            f"features.data: {len(message.data)} bytes, limit 2 x {message.rows} rows x {message.width}"
        )
    return Features(message.start, message.rows, message.width, message.data)


def load_to_proto(load: Load) -> types_pb2.Load:
    """The message for a replica's load."""
    return types_pb2.Load(sessions=load.sessions, rows=load.rows, queue=load.queue)


def load_from_proto(message: types_pb2.Load) -> Load:
    """A replica's load."""
    return Load(message.sessions, message.rows, message.queue)


def budget_to_proto(budget: Budget) -> draft_pb2.Budget:
    """The message for what a proposal may cost."""
    return draft_pb2.Budget(
        depth=budget.depth,
        nodes=budget.nodes,
        m=budget.m,
        time_left_ms=max(0, int(budget.time_left_s * 1000)),
        p_min=budget.p_min,
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
    check_range("budget.p_min", message.p_min, 0.0, 1.0)
    return Budget(
        message.depth, message.nodes, message.m, message.time_left_ms / 1000, message.p_min
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
        ids = support_from_proto(entry.support, vocab_size, max_m)
        weights = np.asarray(entry.probabilities, dtype=np.float32)
        if weights.shape != ids.shape or not np.all(np.isfinite(weights) & (weights > 0)):
            raise InvalidArgument(
                f"proposal.drawn_from: node {node} needs {ids.size} finite weights above 0"
            )
        strangers = {tree.tokens[child] for child in tree.children[node]} - set(ids.tolist())
        if strangers or not tree.children[node]:
            raise InvalidArgument(
                f"proposal.drawn_from: children {sorted(strangers)} of node {node} are not in it"
            )
        drawn_from[node] = TruncatedDistribution(ids, weights)
    return Proposal(
        tree, message.method or session_method, drawn_from, message.draft_us, message.queue_us
    )


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
            f"evidence: {len(message.outside)} supports, {len(message.probabilities)} probabilities; "
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
