"""The target's states of whole texts, by transformers: large padded batches, no cache.

The engine computes few rows at a time, each in an order of its own, so that its bits never change;
here many rows count, and the processor's matrix unit, where it has one, is several times faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from training.records import Record

ROWS = 4096
"""Of a forward, padding included."""


class Prefill:
    """States of a model.

    Args:
        model: the transformers model, on its device; it is not changed.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._decoder = model.base_model
        self._device = model.device
        self._layers: int = model.config.get_text_config().num_hidden_layers

    @torch.no_grad()
    def rows(self, records: Sequence[Record], taps: Sequence[int]) -> list[Tensor]:
        """States [n, taps * hidden] of each record, n its tokens.

        Args:
            taps: layers whose input is wanted; the number of layers for the state after the final
                norm.
        """
        found: dict[int, Tensor] = {}
        order = sorted(range(len(records)), key=lambda place: len(records[place].ids))
        group: list[int] = []
        for place in order:  # ascending, so the newest is the longest
            if group and (len(group) + 1) * len(records[place].ids) > ROWS:
                found.update(self._forward(records, group, taps))
                group = []
            group.append(place)
        found.update(self._forward(records, group, taps))
        return [found[place] for place in range(len(records))]

    def _forward(
        self, records: Sequence[Record], places: Sequence[int], taps: Sequence[int]
    ) -> dict[int, Tensor]:
        lengths = [len(records[place].ids) for place in places]
        # What is padded at the right is behind everything, and attention looks to the left only.
        ids = torch.zeros(len(places), max(lengths), dtype=torch.long)
        for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
            ids[row, :length] = torch.from_numpy(records[place].ids)
        out = self._decoder(
            input_ids=ids.to(self._device), output_hidden_states=True, use_cache=False
        )
        tapped = [
            out.last_hidden_state if tap == self._layers else out.hidden_states[tap] for tap in taps
        ]
        return {
            place: torch.cat([states[row, :length] for states in tapped], dim=-1)
            for row, (place, length) in enumerate(zip(places, lengths, strict=True))
        }
