"""The EAGLE head: one decoder layer that continues the target's features.

EAGLE-3, in the layout and with the names of the `speculators` library (0.9.0):

    g_0 = fc(taps)                            one row for each position of the target
    a   = [norm(E(x)), norm(g)]               x is the token behind the position of g
    h   = g + attention(a),  y = h + mlp(norm(h))
    logits = lm_head(norm(y)),  and g of the next step is y

EAGLE-1 and 2: a = fc([E(x), f]) is the residual too, without norms before it, and y is the final
state itself. Row i pairs feature i with token i + 1 and predicts token i + 2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from outrider.models.heads.config import EAGLE1, EagleConfig
from outrider.models.heads.memory import Attends, Memory


class Norm(nn.RMSNorm):
    """In the format of its weight: where products are rounded, norms are not."""

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden], the same shape back."""
        out: Tensor = super().forward(x.to(self.weight.dtype))
        return out


class EagleHead(nn.Module):
    """See the module. The embedding is frozen; everything else may be trained.

    Args:
        config: shapes and switches.
        draft_ids: target ids [draft vocabulary] ascending, which row j of the LM head stands for;
            the first ones where None.
        dropout: of the layer's two branches while it trains.
    """

    d2t: Tensor
    t2d: Tensor

    def __init__(
        self, config: EagleConfig, draft_ids: Tensor | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config = config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.embed_tokens.requires_grad_(False)
        self.fc = nn.Linear(config.fc_in, hidden, bias=config.kind == EAGLE1)
        self.input_norm = Norm(config.fc_in, eps) if config.norm_before_fc else None
        taps = len(config.taps)
        self.fc_norm = (
            nn.ModuleList([Norm(hidden, eps) for _ in range(taps)]) if config.fc_norm else None
        )
        self.layers = nn.ModuleList([EagleLayer(config, dropout)])
        self.norm = nn.Identity() if config.kind == EAGLE1 else Norm(hidden, eps)
        self.lm_head = nn.Linear(hidden, config.draft_vocab_size, bias=False)
        self.rotary_emb = LlamaRotaryEmbedding(config.layer_config())
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        self.set_draft_ids(
            torch.arange(config.draft_vocab_size) if draft_ids is None else draft_ids
        )

    @property
    def draft_ids(self) -> Tensor:
        """The target id of each row of the LM head [draft vocabulary]; `d2t` is an offset."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def set_draft_ids(self, ids: Tensor) -> None:
        """Says which target ids the rows of the LM head stand for, ascending."""
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()
        self.t2d[ids] = True

    def fuse(self, features: Tensor) -> Tensor:
        """Features of the target [..., taps * hidden] -> g of the first step [..., hidden]."""
        if self.config.kind == EAGLE1:
            return features
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.chunk(len(self.fc_norm), dim=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            features = torch.cat(normed, dim=-1)
        fused: Tensor = self.fc(features)
        return fused

    def step(self, tokens: Tensor, g: Tensor, memory: Memory) -> Tensor:
        """One pass: tokens [batch, rows] with their g [batch, rows, hidden] -> y, the same shape.

        `memory` holds the keys and values of earlier steps and takes this one's.
        """
        embedded = self.embed_tokens(tokens)
        layer: EagleLayer = self.layers[0]  # type: ignore[assignment]
        if self.config.kind == EAGLE1:
            residual = self.fc(torch.cat([embedded, g], dim=-1))
            rows = residual
        else:
            rows, residual = layer.joined(embedded, g)
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None] + memory.steps
        cos, sin = self.rotary_emb(rows, positions)
        out: Tensor = layer(rows, residual, cos, sin, memory)
        return out

    def feedback(self, states: Tensor) -> Tensor:
        """g of the next step from this one's y."""
        fed: Tensor = self.norm(states) if self.config.norm_output else states
        return fed

    def unroll(self, tokens: Tensor, features: Tensor, steps: int) -> list[Tensor]:
        """Training-time test: `steps` passes over whole sequences, each fed with the one before.

        Args:
            tokens: ids [batch, rows] as they stand in the text; sequences are padded at their
                right with any ids.
            features: of the same positions [batch, rows, taps * hidden].
            steps: at least 1.

        Returns:
            y of each step [batch, rows, hidden]. Row i of step s was fed with token i + 1 + s and
            predicts token i + 2 + s, so the last 2 + s rows of a sequence predict nothing. Row i
            attends to rows 0 to i of step 0 and to itself in later steps: what it would see after
            s drafted tokens.
        """
        g = self.fuse(features)
        memory = Memory()
        states = []
        for step in range(steps):
            y = self.step(_rolled(tokens, 1 + step), g, memory)
            states.append(y)
            g = self.feedback(y)
        return states

    def head_input(self, states: Tensor) -> Tensor:
        """What the LM head takes, from y [..., hidden]; the same shape."""
        normed: Tensor = self.norm(states)
        return normed

    def logits(self, states: Tensor) -> Tensor:
        """y [..., hidden] -> logits [..., draft vocabulary]."""
        out: Tensor = self.lm_head(self.norm(states))
        return out


class EagleLayer(nn.Module):
    """The decoder layer; the query, key and value projections take what `joined` makes."""

    def __init__(self, config: EagleConfig, dropout: float) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = config.norm_before_residual
        if config.kind != EAGLE1:
            self.input_layernorm = Norm(hidden, eps)
            self.hidden_norm = Norm(hidden, eps)
        self.self_attn = EagleAttention(config)
        self.post_attention_layernorm = Norm(hidden, eps)
        self.mlp = EagleMLP(hidden, config.intermediate_size)
        self.dropout = nn.Dropout(dropout)

    def joined(self, embedded: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Normed embedding and feature side by side [..., 2 hidden], and the residual."""
        normed = self.hidden_norm(g)
        rows = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        return rows, normed if self.norm_before_residual else g

    def forward(
        self, rows: Tensor, residual: Tensor, cos: Tensor, sin: Tensor, memory: Attends
    ) -> Tensor:
        """rows [batch, rows, qkv inputs], residual [batch, rows, hidden] -> y as the residual."""
        h = residual + self.dropout(self.self_attn(rows, cos, sin, memory))
        out: Tensor = h + self.dropout(self.mlp(self.post_attention_layernorm(h)))
        return out


class EagleAttention(nn.Module):
    """Attention with rotary positions; what is seen is the memory's matter."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        width, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.qkv_in, width, bias=False)
        self.k_proj = nn.Linear(config.qkv_in, kv, bias=False)
        self.v_proj = nn.Linear(config.qkv_in, kv, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        norms = config.qk_norm
        self.q_norm = Norm(config.head_dim, config.rms_norm_eps) if norms else nn.Identity()
        self.k_norm = Norm(config.head_dim, config.rms_norm_eps) if norms else nn.Identity()

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, memory: Attends) -> Tensor:
        """rows [batch, rows, qkv inputs]; cos, sin [1, rows, dim] -> [batch, rows, hidden]."""
        split = (*rows.shape[:-1], -1, self.head_dim)
        query = _rotated(self.q_norm(self.q_proj(rows).view(split)), cos, sin)
        key = _rotated(self.k_norm(self.k_proj(rows).view(split)), cos, sin)
        value = self.v_proj(rows).view(split).transpose(1, 2)
        out: Tensor = self.o_proj(memory.attend(query, key, value))
        return out


class EagleMLP(nn.Module):
    """The gated product of the Llama family."""

    def __init__(self, hidden: int, middle: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, middle, bias=False)
        self.up_proj = nn.Linear(hidden, middle, bias=False)
        self.down_proj = nn.Linear(middle, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden], the same shape back."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def _rolled(tokens: Tensor, by: int) -> Tensor:
    """Row i becomes what stood at i + by; the last rows, which count no more, become 0."""
    return functional.pad(tokens[:, by:], (0, min(by, tokens.shape[1])))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [batch, rows, heads, dim] rotated -> [batch, heads, rows, dim]."""
    x = x.transpose(1, 2)
    low, high = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat([-high, low], dim=-1) * sin[:, None]
