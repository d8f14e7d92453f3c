"""What can be said of a model without loading its weights."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedConfig
from transformers.utils.hub import cached_file

from outrider.models.attention import UnsupportedModelError
from outrider.models.decoders import why_not_lean
from outrider.models.family import check_config, check_modules
from outrider.models.hub import ModelSpecError, resolve
from outrider.models.tokenizer import load_tokenizer, tokenizer_fingerprint


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model directory.

    Sizes in bytes, parameters as stored (a tied head counts once). decoder serves it on a CPU like
    this one: lean, generic or none; decoder_reason says why.
    """

    name: str
    path: str
    family: str
    parameters: int
    size_bytes: int
    dtypes: tuple[str, ...]
    layers: int
    hidden_size: int
    heads: int
    key_value_heads: int
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]
    chat_template: bool
    tokenizer_fingerprint: str
    decoder: str
    decoder_reason: str


def fetch_from_hub(hub_id: str) -> Path:
    """Brings a hub model's files into transformers' own cache.

    Raises:
        ModelSpecError: no hub gave it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        kept = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
        return Path(snapshot_download(hub_id, allow_patterns=kept))
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError) as error:
        raise ModelSpecError(
            f"model {hub_id!r}: is no directory or file, and no hub gave it"
        ) from error


def inspect_model(spec: str) -> ModelFacts:
    """Facts of the model behind a spec; the default target is fetched where it is missing.

    Raises:
        ModelSpecError: it cannot be had or read.
    """
    place = resolve(spec)
    try:
        config = AutoConfig.from_pretrained(place).get_text_config()
        path = (
            place
            if isinstance(place, Path)
            else Path(str(cached_file(place, "config.json"))).parent
        )
        eos = GenerationConfig.from_pretrained(path).eos_token_id if _has_generation(path) else None
    except (OSError, ValueError) as error:
        raise ModelSpecError(
            f"model {spec!r}: its configuration cannot be read: {error}"
        ) from error
    if eos is None:
        eos = config.eos_token_id
    tokenizer = load_tokenizer(str(path))
    tensors = [tensor for file in path.glob("*.safetensors") for tensor in _tensors(file)]
    decoder, reason = _decoder(config)
    return ModelFacts(
        name=path.name if isinstance(place, Path) else place,
        path=str(path),
        family=config.model_type,
        parameters=sum(math.prod(t["shape"]) for t in tensors),
        size_bytes=sum(file.stat().st_size for file in path.glob("*.safetensors")),
        dtypes=tuple(sorted({t["dtype"] for t in tensors})),
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        heads=config.num_attention_heads,
        key_value_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        vocab_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        eos_ids=() if eos is None else (eos,) if isinstance(eos, int) else tuple(sorted(eos)),
        chat_template=bool(tokenizer.chat_template),
        tokenizer_fingerprint=tokenizer_fingerprint(tokenizer),
        decoder=decoder,
        decoder_reason=reason,
    )


def _decoder(config: PreTrainedConfig) -> tuple[str, str]:
    """Which decoder serves a language model on this machine's processor, and why."""
    try:
        check_config(config, config.model_type)
    except UnsupportedModelError as error:
        return "none", str(error)
    reason = why_not_lean(config, torch.device("cpu"), torch.float32)
    if reason is None:
        return "lean", f"family {config.model_type}"
    try:
        with torch.device("meta"):
            check_modules(AutoModelForCausalLM.from_config(config))  # type: ignore[no-untyped-call]
    except (UnsupportedModelError, ValueError) as error:
        return "none", str(error)
    return "generic", reason


def _has_generation(path: Path) -> bool:
    return (path / "generation_config.json").is_file()


def _tensors(file: Path) -> Iterator[dict[str, Any]]:
    """Dtype and shape of each tensor, from the header alone: eight bytes of length, then JSON."""
    with file.open("rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
        header = json.loads(handle.read(length))
    for name, entry in header.items():
        if name != "__metadata__":
            yield entry
