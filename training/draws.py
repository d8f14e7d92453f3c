"""Tokens for many rows of logits at once, each a function of its own row and its own number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

CANDIDATES = 512
"""Tokens that a nucleus may have at most: sorting whole vocabularies costs more than a forward."""


def uniform(seed: int, digest: str, position: int) -> float:
    """A number in [0, 1) for one place of one text.

    So a text does not depend on which others were written beside it, or before a restart.
    """
    key = hashlib.sha256(f"{seed} {digest} {position}".encode()).digest()
    return int.from_bytes(key[:6], "big") / 2**48


def choose(logits: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]) -> list[int]:
    """One token a row.

    Args:
        logits: [n, vocab] float32.
        temperatures: of each row; 0 takes the likeliest.
        uniforms: of each row, where in the mass to draw.
    """
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, temperature in enumerate(temperatures) if temperature > 0]
    if drawn:
        place = torch.tensor(drawn, device=logits.device)
        heat = torch.tensor([temperatures[row] for row in drawn], device=logits.device)
        p = torch.softmax(logits[place] / heat[:, None], dim=-1)
        tokens[place] = inverse(p, [uniforms[row] for row in drawn])
    return [int(token) for token in tokens.tolist()]


def choose_nucleus(logits: Tensor, top_p: float, uniforms: Sequence[float]) -> list[int]:
    """One token a row from the smallest set that has `top_p` of the mass, at temperature 1."""
    p = torch.softmax(logits, dim=-1)
    likely, ids = p.topk(min(CANDIDATES, p.shape[-1]), dim=-1)
    before = likely.cumsum(-1) - likely
    chosen = inverse(likely * (before < top_p), uniforms)
    return [int(token) for token in ids.gather(-1, chosen[:, None])[:, 0].tolist()]


def inverse(weights: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The column of each row [n] where its `uniform` falls in its mass; never one without mass.

    weights: [n, m], not negative, each row with some mass.
    """
    mass = weights.double().cumsum(-1)
    share = torch.tensor(uniforms, dtype=torch.float64, device=weights.device)
    wanted = torch.minimum(share * mass[:, -1], mass[:, -1].nextafter(mass.new_zeros(())))
    return torch.searchsorted(mass, wanted[:, None], right=True)[:, 0]
