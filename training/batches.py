"""Sequences and their features as padded tensors, in an order that seed and epoch decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.features import FeatureCache
from training.records import Record

_BUCKET = 64
"""Sequences among which similar lengths are put together, so that little is padding."""


@dataclass(frozen=True)
class Batch:
    """Sequences padded at their right; T is the longest's length.

    Shapes: ids [b, T] long, lengths [b], prompt_lengths [b], final [b, T, hidden] float32 (the
        target's state after its final norm), taps [b, T, taps * hidden] float32, of no width where
        the learner taps nothing.
    """

    ids: Tensor
    lengths: Tensor
    prompt_lengths: Tensor
    final: Tensor
    taps: Tensor


@dataclass(frozen=True)
class Dataset:
    """Records with their features.

    taps: layers whose input the learner reads. longest: tokens of a sequence that are used.
    """

    records: Sequence[Record]
    features: FeatureCache
    taps: tuple[int, ...]
    longest: int
    device: torch.device

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence that are used."""
        return [min(len(record.ids), self.longest) for record in self.records]

    def batch(self, places: Sequence[int]) -> Batch:
        """The sequences at `places`."""
        records = [self.records[place] for place in places]
        lengths = [min(len(record.ids), self.longest) for record in records]
        final = (self.features.plan.taps[-1],)
        ids = torch.zeros(len(records), max(lengths), dtype=torch.long)
        for row, (record, length) in enumerate(zip(records, lengths, strict=True)):
            ids[row, :length] = torch.from_numpy(record.ids[:length])
        prompts = [record.prompt_length for record in records]
        return Batch(
            ids=ids.to(self.device),
            lengths=torch.tensor(lengths, device=self.device),
            prompt_lengths=torch.tensor(prompts, device=self.device),
            final=self._padded(records, lengths, final),
            taps=self._padded(records, lengths, self.taps),
        )

    def _padded(
        self, records: Sequence[Record], lengths: Sequence[int], taps: tuple[int, ...]
    ) -> Tensor:
        width = len(taps) * self.features.plan.hidden_size
        out = torch.zeros(len(records), max(lengths), width)
        for row, (record, length) in enumerate(zip(records, lengths, strict=True)):
            if taps:
                out[row, :length] = self.features.rows(record.digest, taps)[:length].float()
        return out.to(self.device)


def epoch_batches(lengths: Sequence[int], rows: int, seed: int, epoch: int) -> list[list[int]]:
    """Places of the sequences of each batch of an epoch.

    Args:
        lengths: of all sequences.
        rows: of a batch, padding included; a longer sequence is a batch of its own.
        seed, epoch: decide the order.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for first in range(0, len(order), _BUCKET):
        bucket = sorted(order[first : first + _BUCKET], key=lambda place: (lengths[place], place))
        batch: list[int] = []
        for place in bucket:  # ascending, so the newest is the longest
            if batch and (len(batch) + 1) * lengths[place] > rows:
                batches.append(batch)
                batch = []
            batch.append(place)
        batches.append(batch)
    return [batches[place] for place in rng.permutation(len(batches)).tolist()]
