"""The learner of a draft model: some of the target's layers, between its embedding and its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.models.family import blocks_of
from outrider.models.heads.draft_model_files import METHOD, save_draft_model, trained_tensors
from outrider.models.heads.layers import layers_of
from outrider.models.heads.target import TargetParts
from training.acceptance import Acceptance
from training.batches import Batch
from training.head import Head
from training.vocabulary import DraftVocabulary


def default_layers(layers: int) -> tuple[int, ...]:
    """The first two and the last; all of a target that has no more."""
    return tuple(sorted({0, min(1, layers - 1), layers - 1}))


class DraftModelLearner:
    """Layers copied from the target; embedding and head are the target's and stay as they are.

    Args:
        target: as loaded, float32; it is not changed.
        layers: which of its layers, ascending.
        vocabulary: rows of the head.
        parts: of the target, for the checkpoint.
        dropout: of the embedding and of what each layer adds, while it trains.
    """

    method = METHOD
    taps: tuple[int, ...] = ()
    deepest: int | None = None

    def __init__(
        self,
        target: PreTrainedModel,
        layers: Sequence[int],
        vocabulary: DraftVocabulary,
        parts: TargetParts,
        dropout: float = 0.1,
    ) -> None:
        self.layers, self.vocabulary, self.parts = tuple(layers), vocabulary, parts
        self.model = layers_of(target, self.layers).requires_grad_(False)
        blocks = blocks_of(self.model.base_model, len(self.layers))
        for name, parameter in trained_tensors(self.model).items():
            parameter.requires_grad_(not name.startswith("lm_head"))
        if dropout > 0:
            self.model.get_input_embeddings().register_forward_hook(_dropped(dropout))
            for block in blocks:
                block.register_forward_hook(_dropped_addition(dropout), with_kwargs=True)
        self._head = Head.of(target, torch.from_numpy(vocabulary.ids))

    @property
    def module(self) -> nn.Module:
        """The layers and the final norm; the rest is frozen."""
        decoder: nn.Module = self.model.base_model
        return decoder

    def to(self, device: torch.device) -> DraftModelLearner:
        """Moves it to a device."""
        nn.Module.to(self.model, device)
        self._head = self._head.to(device)
        return self

    def depth_weights(self, progress: float) -> Sequence[float]:
        """One depth: what it sees of its own right drafts is what it sees of the text."""
        return (1.0,)

    def states(self, batch: Batch, depth: int) -> Sequence[Tensor]:
        """See `Learner`: one pass serves all depths, moved by one column each."""
        decoder: Any = self.module
        states = decoder(input_ids=batch.ids, use_cache=False).last_hidden_state
        return [functional.pad(states[:, by:], (0, 0, 0, by)) for by in range(depth)]

    def head(self, depth: int) -> Head:
        """The target's rows of the draft vocabulary."""
        return self._head

    def save(self, folder: Path, found: Acceptance) -> None:
        """The shipped form: trained tensors and the id map."""
        tensors = {name: p.detach() for name, p in trained_tensors(self.model).items()}
        ids = torch.from_numpy(self.vocabulary.ids)
        save_draft_model(folder, tensors, self.layers, ids, self.parts)


def _dropped(share: float) -> Callable[[nn.Module, Any, Tensor], Tensor | None]:
    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        return functional.dropout(output, share) if module.training else None

    return hook


def _dropped_addition(
    share: float,
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], Any]:
    """Drops parts of what a layer adds to its input."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not module.training:
            return None
        before = args[0] if args else kwargs["hidden_states"]
        after = output[0] if isinstance(output, tuple) else output
        dropped = before + functional.dropout(after - before, share)
        return (dropped, *output[1:]) if isinstance(output, tuple) else dropped

    return hook
