"""Shapes and switches of the trained heads, and those that suit a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import LlamaConfig, PreTrainedConfig

EAGLE3, EAGLE1 = "eagle3", "eagle"


def default_taps(layers: int) -> tuple[int, ...]:
    """Layers whose inputs EAGLE-3 looks at: an early, a middle and a late one."""
    return tuple(sorted({min(2, layers), layers // 2, max(layers - 3, 0)}))


@dataclass(frozen=True)
class EagleConfig:
    """One EAGLE head.

    Args:
        hidden_size: of target and head alike.
        vocab_size: rows of the target's embedding.
        draft_vocab_size: rows of the head's own LM head.
        taps: layers of the target whose input is a feature; the target's number of layers stands
            for the state after its final norm.
        heads, kv_heads, head_dim, intermediate_size, rms_norm_eps: of the head's layer.
        rope: rotary parameters as transformers writes them (rope_type, rope_theta, ...).
        context_length: positions that the layer may see.
        kind: "eagle3", or "eagle" for versions 1 and 2: one tap, joined with the embedding by `fc`.
        qk_norm: norms of each head's query and key, as Qwen3 has them.
        norm_before_residual: the residual is the normed feature.
        norm_before_fc, fc_norm: the features are normed together, or each on its own, before `fc`.
        norm_output: the normed output is fed back, as EAGLE-3.1 does.
    """

    hidden_size: int
    vocab_size: int
    draft_vocab_size: int
    taps: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float = 1e-5
    rope: Mapping[str, Any] = field(default_factory=lambda: _PLAIN_ROPE)
    context_length: int = 2048
    kind: str = EAGLE3
    qk_norm: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    @classmethod
    def for_target(
        cls,
        target: PreTrainedConfig,
        draft_vocab_size: int,
        taps: tuple[int, ...] | None = None,
        **switches: Any,
    ) -> EagleConfig:
        """A head whose layer has the shape of the target's own.

        Args:
            target: the target's configuration, or that of its text model.
            draft_vocab_size: rows of the head's LM head.
            taps: see `EagleConfig`; the method's default where None.
            switches: any of the other fields.
        """
        text = target.get_text_config()
        layers, heads = text.num_hidden_layers, text.num_attention_heads
        kind = switches.get("kind", EAGLE3)
        usual = (layers,) if kind == EAGLE1 else default_taps(layers)
        fields: dict[str, Any] = {
            "hidden_size": text.hidden_size,
            "vocab_size": text.vocab_size,
            "draft_vocab_size": draft_vocab_size,
            "taps": usual if taps is None else tuple(taps),
            "heads": heads,
            "kv_heads": getattr(text, "num_key_value_heads", None) or heads,
            "head_dim": getattr(text, "head_dim", None) or text.hidden_size // heads,
            "intermediate_size": getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            "rms_norm_eps": getattr(text, "rms_norm_eps", None) or 1e-5,
            "rope": _rope_of(text),
            "context_length": text.max_position_embeddings,
        }
        return cls(**{**fields, **switches})

    @property
    def fc_in(self) -> int:
        """Inputs of `fc`: all taps, or the embedding and one of them."""
        return self.hidden_size * (2 if self.kind == EAGLE1 else len(self.taps))

    @property
    def qkv_in(self) -> int:
        """Inputs of the layer's query, key and value projections."""
        return self.hidden_size * (1 if self.kind == EAGLE1 else 2)

    def layer_config(self) -> LlamaConfig:
        """The layer as a transformers configuration."""
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=1,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.rms_norm_eps,
            max_position_embeddings=self.context_length,
            rope_parameters=dict(self.rope),
            attention_bias=False,
            tie_word_embeddings=False,
            pad_token_id=None,
        )


@dataclass(frozen=True)
class MedusaConfig:
    """Medusa heads.

    Args:
        hidden_size, vocab_size: of the target.
        draft_vocab_size: rows of the heads' LM heads.
        heads: how many; head k (from 0) predicts the token k + 2 behind the state's own.
        layers: residual blocks of each head.
        shared: whether one LM head serves all heads.
        root_embedding: whether heads read the embedding of the token that the state gave, too.
        accuracies: entry [k][r] is how often rank r of head k was the greedy token; empty where it
            was not measured.
    """

    hidden_size: int
    vocab_size: int
    draft_vocab_size: int
    heads: int = 4
    layers: int = 1
    shared: bool = True
    accuracies: tuple[tuple[float, ...], ...] = ()
    root_embedding: bool = False


_PLAIN_ROPE: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}


def _rope_of(text: PreTrainedConfig) -> dict[str, Any]:
    """The target's rotary parameters; plain ones where it has none, or one set a layer type."""
    given = getattr(text, "rope_parameters", None) or {}
    return dict(given) if "rope_theta" in given else dict(_PLAIN_ROPE)
