"""What names a target in files of a training."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel


@dataclass(frozen=True)
class Target:
    """Name and sizes; `weights_hash` as `outrider.models.numerics` has it, of float32 weights."""

    name: str
    weights_hash: str
    hidden_size: int
    vocab_size: int
    layers: int

    @classmethod
    def of(cls, model: PreTrainedModel, name: str, weights_hash: str) -> Target:
        """A transformers model's."""
        text = model.config.get_text_config()
        return cls(name, weights_hash, text.hidden_size, text.vocab_size, text.num_hidden_layers)
