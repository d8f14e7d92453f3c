"""The parts of a target that its heads share: embedding, LM head, shape, and what names them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from outrider.models.hub import DEFAULT, DEFAULT_NAME, ModelSpecError, resolve
from outrider.models.loading import load_pretrained
from outrider.models.tokenizer import load_tokenizer, tokenizer_fingerprint

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class TargetParts:
    """See the module.

    Args:
        name: how the target is called in messages.
        config: of its language model.
        embedding, head: weights [vocabulary, hidden]; one tensor where they are tied.
        tokenizer_fingerprint: see `outrider.models.tokenizer`.
        place: what transformers loads it from; empty where it came from memory.
    """

    name: str
    config: PreTrainedConfig
    embedding: Tensor
    head: Tensor
    tokenizer_fingerprint: str
    place: str = ""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self.embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        """Width of a state."""
        return self.embedding.shape[1]

    @property
    def layers(self) -> int:
        """Decoder layers."""
        found: int = self.config.num_hidden_layers
        return found

    @cached_property
    def embedding_hash(self) -> str:
        """SHA-256 of the embedding in bfloat16: the same however the target was loaded."""
        half = self.embedding.detach().cpu().to(torch.bfloat16).contiguous()
        return hashlib.sha256(half.view(torch.uint8).numpy().data).hexdigest()

    def identity(self) -> dict[str, Any]:
        """What a checkpoint records of its target."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "layers": self.layers,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "embedding_hash": self.embedding_hash,
        }


def parts_of(
    model: PreTrainedModel, name: str, tokenizer_fingerprint: str, place: str = ""
) -> TargetParts:
    """The parts of a model that is loaded."""
    any_model: Any = model
    return TargetParts(
        name,
        model.config.get_text_config(),
        any_model.get_input_embeddings().weight.detach(),
        any_model.get_output_embeddings().weight.detach(),
        tokenizer_fingerprint,
        place,
    )


def target_parts(spec: str) -> TargetParts:
    """The parts of the target `spec`, read alone where its files allow it.

    Raises:
        ModelSpecError: the target cannot be had or read.
    """
    place = resolve(spec)
    fingerprint = tokenizer_fingerprint(load_tokenizer(str(place)))
    name = DEFAULT_NAME if spec == DEFAULT else place.name if isinstance(place, Path) else place
    if isinstance(place, Path):
        weights = _read(place)
        if _EMBEDDING in weights:
            config = AutoConfig.from_pretrained(place).get_text_config()
            embedding = weights[_EMBEDDING]
            head = embedding if config.tie_word_embeddings else weights.get(_HEAD)
            if head is not None:
                return TargetParts(name, config, embedding, head, fingerprint, str(place))
    return parts_of(load_pretrained(place, torch.float32), name, fingerprint, str(place))


def _read(place: Path) -> dict[str, Tensor]:
    """Embedding and LM head from a directory's safetensors files, as far as they are there."""
    index = place / "model.safetensors.index.json"
    wanted = _EMBEDDING, _HEAD
    try:
        if index.is_file():
            files = json.loads(index.read_text())["weight_map"]
            found = {name: place / files[name] for name in wanted if name in files}
        else:
            found = dict.fromkeys(wanted, place / "model.safetensors")
        tensors = {}
        for name, file in found.items():
            if file.is_file():
                with safe_open(file, framework="pt") as opened:
                    if name in opened.keys():  # noqa: SIM118 - not a mapping
                        tensors[name] = opened.get_tensor(name)
    except (OSError, ValueError, KeyError) as error:
        raise ModelSpecError(f"model {str(place)!r}: cannot be read: {error}") from error
    return tensors
