"""How many tokens a drafter would save, told from held-out texts without drafting them.

On a greedy text the drafter's proposals count only while they equal the text, and so long it has
seen nothing but the text. One pass over it therefore gives the rank of the true token at every
column and depth, and with these every chain and every tree of fixed ranks is played exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.acceptance import Acceptance
from training.batches import Batch, Dataset, epoch_batches
from training.head import Head
from training.learner import Learner
from training.ranks import Ranks, accuracies, chain_length, cross_fit_tree_length
from training.records import GREEDY

ABSENT = 1 << 20
"""Rank of a token that is not in the draft vocabulary, or that the text does not have any more."""
DEPTH = 5
TREES = (4, 8, 12)
_CHUNK = 512


@torch.no_grad()
def evaluate(
    learner: Learner,
    data: Dataset,
    row_of: npt.NDArray[np.int64],
    target_head: Head,
    draft_ids: Tensor,
    rows: int = 2048,
) -> Acceptance:
    """Measures a learner; its module is left in the mode it was in.

    Args:
        data: held-out texts; ranks come from the greedy ones, overlaps from all.
        row_of: of the draft vocabulary.
        target_head: all rows of the target's head.
        draft_ids: [draft vocabulary] target ids.
        rows: of a pass.
    """
    training = learner.module.training
    learner.module.train(False)
    depth = min(DEPTH, learner.deepest or DEPTH)
    table = torch.from_numpy(row_of).to(data.device)
    ranks: list[Ranks] = []
    overlaps: list[Tensor] = []
    for places in epoch_batches(data.lengths, rows, 0, 0):
        batch = data.batch(places)
        states = learner.states(batch, depth)
        greedy = [data.records[place].mode == GREEDY for place in places]
        ranks += _ranks(learner, batch, states, table, greedy)
        overlaps.append(_overlaps(learner, batch, states, target_head, draft_ids))
    learner.module.train(training)
    return _summary(ranks, torch.cat(overlaps), depth)


def _summary(ranks: Sequence[Ranks], overlaps: Tensor, depth: int) -> Acceptance:
    together = np.concatenate(ranks) if ranks else np.full((1, depth), ABSENT)
    right = np.logical_and.accumulate(together == 0, axis=1).sum(0)
    before = np.concatenate([[len(together)], right[:-1]])
    conditional = right / np.maximum(before, 1)
    sampled = overlaps[:, :4].cumprod(-1).sum(-1).mean() if len(overlaps) else torch.zeros(())
    return Acceptance(
        first=float(conditional[0]),
        conditional=tuple(float(share) for share in conditional),
        chain={k: chain_length(ranks, k) for k in range(1, depth + 1)},
        tree={nodes: cross_fit_tree_length(ranks, nodes) for nodes in TREES},
        overlap=tuple(float(x) for x in overlaps.mean(0)) if len(overlaps) else (),
        sampled_chain=1.0 + float(sampled),
        accuracies=tuple(tuple(map(float, row)) for row in accuracies([together])),
        columns=len(together) if ranks else 0,
        sequences=len(ranks),
    )


def _starts(batch: Batch, row: int) -> range:
    """Columns of a text at which a round may begin: the response's, its last token apart."""
    return range(int(batch.prompt_lengths[row]), int(batch.lengths[row]) - 1)


def _ranks(
    learner: Learner,
    batch: Batch,
    states: Sequence[Tensor],
    row_of: Tensor,
    wanted: Sequence[bool],
) -> list[Ranks]:
    """Of each sequence that is wanted: rank of the true token [columns, depth]."""
    found = []
    for row in range(len(batch.ids)):
        starts = _starts(batch, row)
        if not wanted[row] or not starts:
            continue
        ranks = np.full((len(starts), len(states)), ABSENT)
        for depth, drafted in enumerate(states):
            stop = max(starts.start, starts.stop - depth)
            columns = torch.arange(starts.start, stop, device=batch.ids.device)
            truth = row_of[batch.ids[row, columns + 1 + depth]]
            part = _rank_rows(learner.head(depth), drafted[row, columns], truth)
            ranks[: len(columns), depth] = part.cpu().numpy()
        found.append(ranks)
    return found


def _rank_rows(head: Head, states: Tensor, truth: Tensor) -> Tensor:
    """Rank [n] of the rows `truth` [n] among the head's logits; `ABSENT` where truth is -1."""
    out = torch.full((len(states),), ABSENT, device=states.device)
    for first in range(0, len(states), _CHUNK):
        rows = slice(first, first + _CHUNK)
        logits, wanted = head.logits(states[rows]), truth[rows]
        own = logits.gather(1, wanted.clamp_min(0)[:, None])
        place = torch.arange(logits.shape[1], device=logits.device)[None]
        ahead = (logits > own) | ((logits == own) & (place < wanted[:, None]))
        out[rows] = torch.where(wanted >= 0, ahead.sum(1), ABSENT)
    return out


def _overlaps(
    learner: Learner,
    batch: Batch,
    states: Sequence[Tensor],
    target_head: Head,
    draft_ids: Tensor,
    every: int = 16,
) -> Tensor:
    """sum min(p, q) [columns, depth] at some columns, for whole vocabularies are slow."""
    parts = []
    for row in range(len(batch.ids)):
        starts = _starts(batch, row)
        stop = max(starts.start, starts.stop - len(states) + 1)
        columns = torch.arange(starts.start, stop, every, device=batch.ids.device)
        found = []
        for depth, drafted in enumerate(states):
            q = torch.softmax(learner.head(depth).logits(drafted[row, columns]), dim=-1)
            p = torch.softmax(target_head.logits(batch.final[row, columns + depth]), dim=-1)
            found.append(torch.minimum(p[:, draft_ids], q).sum(-1))
        parts.append(torch.stack(found, dim=-1).cpu())
    return torch.cat(parts)
