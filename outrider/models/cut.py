"""Draft models made from a target: its first layers, or a copy with noise on its weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from outrider.models.convert import open_to_readers, quiet
from outrider.models.family import blocks_of
from outrider.models.hub import ModelSpecError, resolve
from outrider.models.loading import load_pretrained
from outrider.models.tokenizer import load_tokenizer

NOISE_SCALE = 0.075
"""Relative noise at which the default target's copy takes the same greedy token about two times in
three.
"""


def cut_model(spec: str, layers: int, out: Path) -> None:
    """Writes a model of the target's first layers; embedding, final norm and head are the target's
    own.

    Args:
        spec: the target.
        layers: how many layers stay, at least 1 and at most the target's.
        out: directory to fill; made where it is missing.

    Raises:
        ModelSpecError: the number of layers is out of range, or the target cannot be had.
    """
    place = resolve(spec)
    total = _layers_of(place)
    if not 1 <= layers <= total:
        raise ModelSpecError(f"layers: {layers}, limit 1 to {total}")
    model = load_pretrained(place, torch.float32)
    text = model.config.get_text_config()
    blocks = blocks_of(model.base_model, total)
    for module in model.base_model.modules():
        for child, found in module.named_children():
            if found is blocks:
                setattr(module, child, nn.ModuleList(blocks[:layers]))
                break
        else:
            continue
        break
    text.num_hidden_layers = layers
    for name, value in vars(text).items():
        if (
            isinstance(value, list) and len(value) == total
        ):  # one entry a layer, such as layer_types
            setattr(text, name, value[:layers])
    _save(model, spec, out)


def noisy_copy(spec: str, out: Path, scale: float, seed: int) -> None:
    """Writes a copy of a model whose matrices carry Gaussian noise.

    Each matrix gets noise with `scale` times its own root mean square; tests use `NOISE_SCALE`.

    Args:
        spec: the model.
        out: directory to fill.
        scale: of the noise, relative.
        seed: of the noise.
    """
    model = load_pretrained(resolve(spec), torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise, alpha=scale * float(parameter.square().mean().sqrt()))
    _save(model, spec, out)


def _layers_of(place: Path | str) -> int:
    """From the configuration alone: the weights may take minutes to load."""
    try:
        return int(AutoConfig.from_pretrained(place).get_text_config().num_hidden_layers)
    except (OSError, ValueError) as error:
        raise ModelSpecError(f"model {str(place)!r}: cannot be read: {error}") from error


def _save(model: PreTrainedModel, spec: str, out: Path) -> None:
    with quiet():
        model.save_pretrained(out)
    open_to_readers(out)
    load_tokenizer(spec).save_pretrained(out)
