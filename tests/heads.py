"""Tiny heads with random weights for the tiny targets."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.models.heads.config import EagleConfig, MedusaConfig
from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.medusa import MedusaHeads
from outrider.models.heads.start import start_eagle, start_medusa


def every_second(vocab: int) -> torch.Tensor:
    """Draft ids that are not their own places."""
    return torch.arange(0, vocab, 2)


def tiny_eagle(
    target: PreTrainedModel, draft_ids: torch.Tensor | None = None, **switches: Any
) -> EagleHead:
    """A head whose every weight is random, norms included."""
    vocab = target.config.vocab_size
    ids = every_second(vocab) if draft_ids is None else draft_ids
    config = EagleConfig.for_target(target.config, len(ids), **switches)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        head = start_eagle(config, target, ids)
        with torch.no_grad():
            for parameter in head.parameters():
                if parameter is head.embed_tokens.weight:
                    continue
                if parameter.dim() == 1:
                    parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
                else:
                    parameter.copy_(torch.randn_like(parameter) * parameter.shape[1] ** -0.5)
    return head


def tiny_medusa(
    target: PreTrainedModel, draft_ids: torch.Tensor | None = None, **fields: Any
) -> MedusaHeads:
    """Heads with random blocks."""
    vocab, hidden = target.config.vocab_size, target.config.hidden_size
    ids = every_second(vocab) if draft_ids is None else draft_ids
    config = MedusaConfig(hidden, vocab, len(ids), **{"heads": 3, **fields})
    heads = start_medusa(config, target, ids)
    with torch.random.fork_rng():
        torch.manual_seed(6)
        with torch.no_grad():
            for name, parameter in heads.named_parameters():
                if name.startswith(("blocks.", "root.")):
                    parameter.copy_(0.3 * torch.randn_like(parameter))
    return heads
