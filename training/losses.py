"""Soft cross entropy against the target, without ever holding all logits.

    L = sum_i w_i * -sum_v p_i(v) log q_i(v) / sum_i w_i

p is the target's softmax over the draft vocabulary alone, from its final states and the same rows
of its head. Gradients are computed along with the loss, some rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.head import Head

CHUNK = 128


def probabilities(head: Head, states: Tensor) -> Tensor:
    """The teacher's [n, rows], in the format of its head, from states [n, hidden] after its final
    norm."""
    states = states.to(head.weight.dtype)
    out = states.new_empty(len(states), len(head.weight))
    for first in range(0, len(states), CHUNK):
        rows = slice(first, first + CHUNK)
        torch.softmax(head.logits(states[rows]), dim=-1, out=out[rows])
    return out


def soft_cross_entropy(states: Tensor, head: Head, teacher: Tensor, weights: Tensor) -> Tensor:
    """The loss, a scalar; 0 where no row has weight.

    Args:
        states: [n, hidden] of the draft, before its head.
        head: of the draft; its weight gets a gradient where it asks for one.
        teacher: probabilities [n, rows] of the same vocabulary, in the same order; in the format
            that the products shall have.
        weights: [n] of the rows, not negative.
    """
    loss: Tensor = _Fused.apply(states, head.weight, head, teacher, weights)  # type: ignore[no-untyped-call]
    return loss


class _Fused(torch.autograd.Function):
    """Keeps the gradients of states and head instead of logits."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        head: Head,
        teacher: Tensor,
        weights: Tensor,
    ) -> Tensor:
        dtype = teacher.dtype
        head = head.with_weight(weight).to(dtype)
        share = weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
        loss = weights.new_zeros(())
        of_states = torch.zeros_like(states) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        states = states.to(dtype)
        # Passes over [chunk, rows] cost as much as the products, so there are few, in place.
        for first in range(0, len(states), CHUNK):
            rows = slice(first, first + CHUNK)
            logits, p = head.logits(states[rows]), teacher[rows]
            mass = torch.logsumexp(logits, dim=-1)
            expected = torch.linalg.vecdot(p, logits)  # of log q: that less the mass
            loss += ((mass - expected).float() * share[rows]).sum()
            if of_states is None and of_weight is None:
                continue
            slope = head.slope(logits)
            gradient = logits.sub_(mass[:, None]).exp_().sub_(p)
            if slope is not None:
                gradient = gradient * slope
            if of_states is not None:
                of_states[rows] = (gradient @ head.weight) * share[rows, None]
            if of_weight is not None:
                of_weight += gradient.mT @ (states[rows] * share[rows, None]).to(dtype)
        ctx.of_states, ctx.of_weight = of_states, of_weight
        return loss

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (outer,) = outputs
        of_states = None if ctx.of_states is None else ctx.of_states * outer
        of_weight = None if ctx.of_weight is None else ctx.of_weight * outer
        return of_states, of_weight, None, None, None
