"""EAGLE checkpoints: the shipped form, and the open one of the `speculators` library.

The open form is that of speculators 0.9.0 (config.py and models/eagle3/ of its wheel): config.json
with `speculators_model_type` "eagle3" and the layer's own configuration inside, model.safetensors
with the names of `EagleHead`, and `d2t` as an offset. Only EAGLE-3 has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig

from outrider.models.heads.checkpoint import (
    CONFIG,
    WEIGHTS,
    check_shipped,
    frozen_of,
    is_shipped,
    save_shipped,
    stored,
)
from outrider.models.heads.config import EAGLE1, EAGLE3, EagleConfig, default_taps
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.record import CheckpointError, Record, fill, read_draft_ids, read_tensors
from outrider.models.heads.target import TargetParts

SPECULATORS = "0.9.0"
"""The version of the library whose layout is written."""
_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
_SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_FOREIGN = ("d2t", "t2d", "verifier_", "rotary_emb.")
"""Tensors of the open form that are no parameters of the head."""


def save_eagle(folder: Path, head: EagleHead, target: TargetParts, frozen_head: bool) -> None:
    """Writes the shipped form: without the embedding, and without an LM head that is the target's
    own (`frozen_head`)."""
    frozen = [_EMBEDDING, *([_HEAD] if frozen_head else [])]
    tensors = {n: t for n, t in head.state_dict().items() if n not in (*frozen, "t2d")}
    config = {**asdict(head.config), "rope": dict(head.config.rope)}
    save_shipped(folder, "eagle", target, config, tensors, frozen)


def save_speculators(
    folder: Path, head: EagleHead, target: TargetParts, speculative_tokens: int = 4
) -> None:
    """Writes the open form, self-contained.

    Raises:
        ValueError: the head is not EAGLE-3, which is all that the form has.
    """
    config = head.config
    if config.kind != EAGLE3:
        raise ValueError(f"kind: {config.kind}, limit {EAGLE3}: the open form has no other")
    layer = config.layer_config().to_dict()
    layer["model_type"] = "qwen3" if config.qk_norm else "llama"
    layer["architectures"] = None
    written = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": SPECULATORS,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": speculative_tokens}
            ],
            "default_proposal_method": "greedy",
            "verifier": {
                "name_or_path": target.place or None,
                "architectures": list(target.config.architectures or []),
            },
        },
        "transformer_layer_config": layer,
        "draft_vocab_size": config.draft_vocab_size,
        "eagle_aux_hidden_state_layer_ids": list(config.taps),
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **{name: getattr(config, name) for name in _SWITCHES},
    }
    tensors = stored(head.state_dict())
    if config.draft_vocab_size == config.vocab_size:
        del tensors["d2t"], tensors["t2d"]
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(written, indent=2, default=str) + "\n")


def load_eagle(folder: Path, target: TargetParts) -> EagleHead:
    """The head of a checkpoint of either form, float32 on the CPU; what was left out is the
    target's.

    Raises:
        CheckpointError: it is damaged or does not fit; the message names file, field and values.
    """
    record, file = Record.read(folder / CONFIG), folder / WEIGHTS
    shipped = is_shipped(record)
    if shipped:
        frozen = frozen_of(record, (_EMBEDDING, _HEAD))
        config = _shipped_config(check_shipped(record, "eagle", target))
    else:
        frozen = [_EMBEDDING]  # the library rebuilds it where it is missing
        config = _open_config(record, target)
    _check(record, config, target)
    tensors = read_tensors(file)
    ids = read_draft_ids(tensors, file, config.draft_vocab_size, target.vocab_size)
    head = EagleHead(config, ids).float()
    rebuilt: Mapping[str, Tensor] = {
        name: {_EMBEDDING: target.embedding, _HEAD: target.head[ids]}[name] for name in frozen
    }
    fill(head, tensors, file, rebuilt, _FOREIGN)
    return head.eval()


def _check(record: Record, config: EagleConfig, target: TargetParts) -> None:
    """What must agree with the target in both forms."""
    for field, mine, theirs in (
        ("hidden_size", config.hidden_size, target.hidden_size),
        ("vocab_size", config.vocab_size, target.vocab_size),
    ):
        if mine != theirs:
            raise CheckpointError(
                f"{record.file}: {field} is {mine}, of target {target.name} {theirs}; "
                "they must be equal"
            )
    if not 1 <= config.draft_vocab_size <= target.vocab_size:
        raise record.refuse(
            "draft_vocab_size", config.draft_vocab_size, f"1 to {config.vocab_size}"
        )
    taps = config.taps
    bad = [t for t in taps if type(t) is not int or not 0 <= t <= target.layers]
    if not taps or bad or len(set(taps)) != len(taps):
        limit = f"distinct layers 0 to {target.layers} of target {target.name}"
        raise record.refuse("taps", list(taps), limit)
    if config.heads % config.kv_heads:
        raise record.refuse("kv_heads", config.kv_heads, f"a divisor of {config.heads}")


def _shipped_config(head: Record) -> EagleConfig:
    values: dict[str, Any] = {}
    for field in fields(EagleConfig):
        if field.type == "int":
            values[field.name] = head.integer(field.name, 1)
        elif field.name == "taps":
            values["taps"] = tuple(head.value("taps", list))
        else:
            kinds = {"float": float, "str": str, "bool": bool}
            values[field.name] = head.value(field.name, kinds.get(str(field.type), dict))
    if values["kind"] not in (EAGLE1, EAGLE3):
        raise head.refuse("kind", values["kind"], f"{EAGLE1} or {EAGLE3}")
    return EagleConfig(**values)


def _open_config(record: Record, target: TargetParts) -> EagleConfig:
    kind = record.value("speculators_model_type", str)
    if kind != "eagle3":
        raise record.refuse("speculators_model_type", kind, "eagle3")
    inner = record.inner("transformer_layer_config")
    layer = _layer_config(inner)
    for field, expected in (
        ("num_hidden_layers", 1),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("hidden_act", "silu"),
    ):
        found = getattr(layer, field, expected)
        if found != expected:
            raise inner.refuse(field, found, expected)
    taps = record.value("eagle_aux_hidden_state_layer_ids", list, None)
    return EagleConfig(
        hidden_size=layer.hidden_size,
        vocab_size=layer.vocab_size,
        draft_vocab_size=record.integer("draft_vocab_size", 1),
        taps=default_taps(target.layers) if taps is None else tuple(taps),
        heads=layer.num_attention_heads,
        kv_heads=layer.num_key_value_heads,
        head_dim=layer.head_dim or layer.hidden_size // layer.num_attention_heads,
        intermediate_size=layer.intermediate_size,
        rms_norm_eps=layer.rms_norm_eps,
        rope=dict(layer.rope_parameters),
        context_length=layer.max_position_embeddings,
        qk_norm=layer.model_type == "qwen3",
        **{name: record.value(name, bool, False) for name in _SWITCHES},
    )


def _layer_config(inner: Record) -> PreTrainedConfig:
    """The layer's configuration; fields that are left out have their family's defaults."""
    family = inner.value("model_type", str, "qwen3")
    if family not in ("llama", "qwen3"):
        raise inner.refuse("model_type", family, "llama or qwen3")
    given = {name: value for name, value in inner.fields.items() if name != "model_type"}
    try:
        config: PreTrainedConfig = AutoConfig.for_model(family, **given)
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{inner.file}: transformer_layer_config: {error}") from error
    return config
