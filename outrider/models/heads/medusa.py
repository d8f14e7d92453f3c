"""Medusa heads: each predicts one token further ahead from the target's final state.

    z_k = block(..block(x)),  block(x) = x + silu(W x + b),  logits_k = U_k z_k

h is the state after the target's final norm at position t, from which its own LM head gives token
t + 1; head k (counted from 0) gives token t + 2 + k. In Medusa itself x = h. When heads are asked,
token t + 1 is chosen already: it is the root of their tree. Heads with a root embedding read it
too, as Hydra's first head does (arXiv 2402.05109):

    x = h + A e / rms(e),  e = the target's embedding of token t + 1
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from outrider.models.heads.config import MedusaConfig


class ResBlock(nn.Module):
    """x + silu(W x + b), which begins as the identity: W and b start at zero."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden], the same shape back."""
        return x + functional.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """See the module.

    Args:
        config: shapes.
        draft_ids: target ids [draft vocabulary] ascending, which row j of the LM heads stands for;
            the first ones where None.
    """

    d2t: Tensor

    def __init__(self, config: MedusaConfig, draft_ids: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(
            nn.ModuleList(ResBlock(config.hidden_size) for _ in range(config.layers))
            for _ in range(config.heads)
        )
        if config.root_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.embed_tokens.requires_grad_(False)
            self.root = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
            nn.init.zeros_(self.root.weight)
        self.lm_heads = nn.ModuleList(
            nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
            for _ in range(1 if config.shared else config.heads)
        )
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
        if draft_ids is not None:
            self.set_draft_ids(draft_ids)

    @property
    def draft_ids(self) -> Tensor:
        """The target id of each row of the LM heads [draft vocabulary]; `d2t` is an offset."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def set_draft_ids(self, ids: Tensor) -> None:
        """Says which target ids the rows of the LM heads stand for, ascending."""
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))

    def forward(self, states: Tensor, roots: Tensor) -> Tensor:
        """z of all heads [heads, ..., hidden].

        Args:
            states: final states of the target [..., hidden].
            roots: target ids [...] of the token that each of them gave; heads without a root
                embedding don't look at them.
        """
        if self.config.root_embedding:
            states = states + self.added(roots)
        out = []
        for blocks in self.blocks:
            z = states
            for block in blocks:  # type: ignore[attr-defined]
                z = block(z)
            out.append(z)
        return torch.stack(out)

    def added(self, roots: Tensor) -> Tensor:
        """What roots [...] add to the states that gave them [..., hidden]."""
        embedded = self.embed_tokens(roots)
        unit: Tensor = self.root(functional.rms_norm(embedded, embedded.shape[-1:], eps=1e-12))
        return unit

    def lm_head(self, head: int) -> nn.Linear:
        """The LM head of head `head`, the only one where they share it."""
        module: nn.Linear = self.lm_heads[0 if self.config.shared else head]  # type: ignore[assignment]
        return module

    def logits(self, states: Tensor, roots: Tensor) -> Tensor:
        """[heads, ..., draft vocabulary] of what `forward` takes."""
        return torch.stack([self.lm_head(k)(z) for k, z in enumerate(self.forward(states, roots))])
