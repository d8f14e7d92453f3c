"""Between protobuf messages and the types of `outrider.core`: what several messages share.

What does not fit is refused by field, value, limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from outrider.core.round import (
    Commit,
    Features,
    Load,
    SamplingParams,
)
from outrider.core.tree import TokenTree, TreeError
from outrider.serving.errors import InvalidArgument
from outrider.v1 import types_pb2

if TYPE_CHECKING:  # it brings torch, which orchestrators do without
    from outrider.models.numerics import Numerics

NO_SAMPLE = -1


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidArgument unless low <= value <= high; NaN never passes."""
    if not low <= value <= high:
        raise InvalidArgument(f"{field}: {value}, limit {low} to {high}")


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
        raise InvalidArgument(f"sampling.temperature: {temperature}, limit at least 0 and finite")
    top_p = message.top_p if message.HasField("top_p") else 1.0
    if not 0.0 < top_p <= 1.0:
        raise InvalidArgument(f"sampling.top_p: {top_p}, limit above 0, at most 1")
    if not 0.0 <= message.min_p <= 1.0:
        raise InvalidArgument(f"sampling.min_p: {message.min_p}, limit 0 to 1")
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
            f"features.data: {len(message.data)} bytes, "
            f"limit 2 x {message.rows} rows x {message.width}"
        )
    return Features(message.start, message.rows, message.width, message.data)


def numerics_to_proto(numerics: Numerics) -> types_pb2.Numerics:
    """What decides a model's bits."""
    return types_pb2.Numerics(
        weights_hash=numerics.weights_hash,
        dtype=numerics.dtype,
        quantization=numerics.quantization,
        kernels=numerics.kernels,
        fingerprint=numerics.fingerprint,
        self_check=numerics.self_check,
    )


def load_to_proto(load: Load) -> types_pb2.Load:
    """The message for a replica's load."""
    return types_pb2.Load(
        sessions=load.sessions,
        rows=load.rows,
        queue=load.queue,
        batch=load.batch,
        left_out=load.left_out,
    )


def load_from_proto(message: types_pb2.Load) -> Load:
    """A replica's load."""
    return Load(message.sessions, message.rows, message.queue, message.batch, message.left_out)
