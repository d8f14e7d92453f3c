"""The learner of a draft model: some of the target's layers, between its embedding and its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.models.draft_checkpoint import Target, layers_of, write_draft
from outrider.models.family import blocks_of
from training.batches import Batch
from training.head import Head
from training.vocabulary import DraftVocabulary

METHOD = "draft_model"


def default_layers(layers: int) -> tuple[int, ...]:
    """The first two and the last; all of a target that has no more."""
    return tuple(sorted({0, min(1, layers - 1), layers - 1}))


class DraftModelLearner:
    """Layers copied from the target; embedding and head are the target's and stay as they are.

    Args:
        target: as loaded, float32; it is not changed.
        layers: which of its layers, ascending.
        vocabulary: rows of the head.
        facts: of the target, for the checkpoint.
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
        facts: Target,
        dropout: float = 0.1,
    ) -> None:
        self.layers, self.vocabulary, self.facts = tuple(layers), vocabulary, facts
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

    def save(self, folder: Path) -> None:
        """The trained tensors and the id map, see `outrider.models.draft_checkpoint`."""
        tensors = {name: p.detach() for name, p in trained_tensors(self.model).items()}
        ids = torch.from_numpy(self.vocabulary.ids)
        write_draft(folder, tensors, self.layers, ids, self.facts)


def trained_tensors(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Parameters of the decoder that are no embedding's."""
    decoder: nn.Module = model.base_model
    frozen = {
        id(parameter)
        for module in decoder.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    return {name: p for name, p in decoder.named_parameters() if id(p) not in frozen}


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
