"""From the logits of a tree's nodes to the evidence that its decision needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from outrider.core.round import Ids, NodeEvidence
from outrider.core.sampling import warp_rows
from outrider.core.tree import TokenTree
from target_service.session import Session


def gather(
    session: Session, tree: TokenTree, logits: torch.Tensor, supports: Mapping[int, Ids]
) -> tuple[tuple[int, ...], dict[int, NodeEvidence]]:
    """Samples and distributions of a tree's nodes.

    Args:
        logits: float32 [nodes, V], root first.
        supports: the ids of q~ [m] at each node under Rejection.

    Returns:
        (a sample for each node, p on the support of each Rejection node), as `Evidence` defines
        them.
    """
    if session.sampling.greedy and not supports:
        return _greedy(logits), {}
    rows: npt.NDArray[np.float32] = logits.cpu().numpy()
    samples: list[int] = []
    nodes: dict[int, NodeEvidence] = {}
    laws = warp_rows(rows, session.sampling)
    for node, (depth, law) in enumerate(zip(tree.depths, laws, strict=True)):
        if node in supports:
            token, mass = session.sample_outside(law, supports[node])
            nodes[node] = NodeEvidence(law.at(supports[node]), mass)
        else:
            token = session.sample(law, session.base_len + depth)
        samples.append(token)
    return tuple(samples), nodes


def _greedy(logits: torch.Tensor) -> tuple[int, ...]:
    """The likeliest token of each row, the lowest id where several tie."""
    if logits.device.type == "cpu":  # torch would wake all its threads for what takes microseconds
        return tuple(logits.numpy().argmax(axis=-1).tolist())
    return tuple(logits.argmax(dim=-1).tolist())


def walked(
    tree: TokenTree, samples: tuple[int, ...], supports: Mapping[int, Ids]
) -> tuple[int, ...]:
    """Nodes whose rows may be committed: Match's path, or all where the orchestrator's walk
    decides."""
    if supports:
        return tuple(range(len(tree)))
    nodes = [0]
    while (child := tree.child_with(nodes[-1], samples[nodes[-1]])) is not None:
        nodes.append(child)
    return tuple(nodes)
