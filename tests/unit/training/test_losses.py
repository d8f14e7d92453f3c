"""The fused loss against the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.tiny import tiny, tiny_model
from training import losses
from training.head import Head
from training.losses import probabilities, soft_cross_entropy

FORMATS = torch.float32, torch.bfloat16


def plain(states: Tensor, head: Head, teacher: Tensor, teacher_head: Head, w: Tensor) -> Tensor:
    p = torch.softmax(teacher_head.logits(teacher), -1)
    log_q = torch.log_softmax(head.logits(states), -1)
    return (-(p * log_q).sum(-1) * w).sum() / w.sum()


@pytest.mark.parametrize(("scale", "cap"), [(1.0, None), (0.5, None), (1.0, 3.0), (2.0, 5.0)])
def test_loss_and_gradients_equal_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, scale: float, cap: float | None
) -> None:
    monkeypatch.setattr(losses, "CHUNK", 7)
    torch.manual_seed(0)
    states = torch.randn(30, 8, requires_grad=True)
    weight = torch.randn(20, 8, requires_grad=True)
    head = Head(weight, torch.randn(20), scale, cap)
    teacher, teacher_head = torch.randn(30, 6), Head(torch.randn(20, 6))
    row_weights = torch.rand(30)
    loss = soft_cross_entropy(states, head, probabilities(teacher_head, teacher), row_weights)
    expected = plain(states, head, teacher, teacher_head, row_weights)
    assert torch.allclose(loss, expected, atol=1e-6)
    found = torch.autograd.grad(2 * loss, (states, weight))
    wanted = torch.autograd.grad(2 * expected, (states, weight))
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
        assert float(theirs.abs().max()) > 1e-3


def test_bfloat16_products_give_nearly_the_same_loss_and_gradients() -> None:
    torch.manual_seed(0)
    states = torch.randn(50, 64, requires_grad=True)
    weight = torch.randn(200, 64, requires_grad=True)
    teacher, teacher_head, weights = torch.randn(50, 64), Head(torch.randn(200, 64)), torch.rand(50)
    p, rounded_p = (probabilities(teacher_head.to(kind), teacher) for kind in FORMATS)
    exact = soft_cross_entropy(states, Head(weight), p, weights)
    rounded = soft_cross_entropy(states, Head(weight), rounded_p, weights)
    assert rounded.dtype == torch.float32
    apart = float((rounded / exact).detach()) - 1
    assert 0 < abs(apart) < 0.01
    found = torch.autograd.grad(rounded, (states, weight))
    for mine, theirs in zip(found, torch.autograd.grad(exact, (states, weight)), strict=True):
        assert mine.dtype == torch.float32
        assert float(torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0)) > 0.999


def test_rows_without_weight_do_not_count_and_none_gives_zero() -> None:
    torch.manual_seed(0)
    head, teacher_head = Head(torch.randn(9, 4)), Head(torch.randn(9, 4))
    states, teacher = torch.randn(6, 4), torch.randn(6, 4)
    weights = torch.tensor([1.0, 0, 1, 0, 1, 0])
    p = probabilities(teacher_head, teacher)
    some = soft_cross_entropy(states[::2], head, p[::2], torch.ones(3))
    assert torch.allclose(soft_cross_entropy(states, head, p, weights), some)
    nothing = soft_cross_entropy(states, head, p, torch.zeros(6))
    assert float(nothing) == 0.0


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_a_head_gives_the_targets_logits(family: str) -> None:
    states = torch.randn(5, 32)
    rows = torch.tensor([3, 9, 40])
    logits = tiny(family).logits(states)
    model = tiny_model(family)
    assert torch.allclose(Head.of(model).logits(states), logits, atol=1e-5)
    assert torch.allclose(Head.of(model, rows).logits(states), logits[:, rows], atol=1e-5)
