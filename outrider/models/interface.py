"""Our attention under the name by which transformers' models call it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from outrider.models.attention import BATCH, Batch, Shape, UnsupportedModelError

NAME = "outrider"
_HARMLESS = frozenset(
    [
        "dropout",
        "position_ids",
        "position_embeddings",
        "cache_position",
        "use_cache",
        "is_causal",
        "cache",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "past_key_values",
        "token_type_ids",
    ]
)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function under our name; shapes as transformers has them ([1, heads, rows,
    dim]).

    Raises:
        UnsupportedModelError: the layer asks for something else than causal attention with a window
            or soft
        cap.
    """
    batch = kwargs.pop(BATCH, None)
    if not isinstance(batch, Batch):
        raise UnsupportedModelError(f"{type(module).__name__} drops keyword arguments on the way")
    window = kwargs.pop("sliding_window", getattr(module, "sliding_window", None))
    shape = Shape(window, kwargs.pop("softcap", None))
    foreign = sorted(k for k, v in kwargs.items() if v is not None and k not in _HARMLESS)
    if foreign or attention_mask is not None:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends with {foreign or ['attention_mask']}"
        )
    if not getattr(module, "is_causal", True):
        raise UnsupportedModelError(f"{type(module).__name__} attends in both directions")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = batch.attend(int(module.layer_idx), query[0], key[0], value[0], scale, shape)  # type: ignore[arg-type]
    return out[None], None


def register() -> None:
    """Makes the attention function known to transformers; repeating it does no harm."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
