"""What is asked of a transformers model of any family.

Its layers, its end, whether it can run packed.
"""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from outrider.models.attention import UnsupportedModelError

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


def eos_ids_of(model: PreTrainedModel) -> tuple[int, ...]:
    """Ids that end a text, of the generation settings or, where these name none, of the
    configuration.
    """
    for source in (model.generation_config, model.config.get_text_config()):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return (ids,) if isinstance(ids, int) else tuple(sorted(set(ids)))
    return ()


def blocks_of(decoder: nn.Module, layers: int) -> nn.ModuleList:
    """The decoder's list of layers."""
    for module in decoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            return module
    raise UnsupportedModelError(f"{type(decoder).__name__} has no list of {layers} layers")


def check_supported(model: PreTrainedModel) -> None:
    """Refuses models whose configuration says that their attention is another.

    Raises:
        UnsupportedModelError: naming the model's class and what it does.
    """
    name = type(model).__name__
    if not model._supports_attention_backend:
        raise UnsupportedModelError(f"{name} does not use transformers' attention interface")
    check_config(model.config.get_text_config(), name)


def check_modules(model: PreTrainedModel) -> None:
    """`check_supported`, and what the model's parts say of themselves.

    Raises:
        UnsupportedModelError: naming the class and what it does.
    """
    check_supported(model)
    for module in model.modules():
        if getattr(module, "is_causal", True) is False:
            raise UnsupportedModelError(f"{type(module).__name__} attends in both directions")


def check_config(text: PreTrainedConfig, name: str) -> None:
    """The part of `check_supported` that a configuration alone answers; `name` is for messages.

    Raises:
        UnsupportedModelError: naming the model and what it does.
    """
    foreign = set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES
    if foreign:
        raise UnsupportedModelError(
            f"{name}: layers of type {sorted(foreign)}, limit {sorted(_LAYER_TYPES)}"
        )
    if getattr(text, "use_bidirectional_attention", False) or not getattr(text, "is_causal", True):
        raise UnsupportedModelError(f"{name} attends in both directions")
