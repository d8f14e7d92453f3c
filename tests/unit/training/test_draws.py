"""Tokens drawn for many rows at once."""

from __future__ import annotations

import torch

from training.draws import choose, choose_nucleus, inverse, uniform


def test_each_row_is_drawn_at_its_own_temperature_and_place() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]] * 4)
    p = torch.softmax(logits[0] / 0.5, -1)
    low, high = float(p[0]) / 2, float(p[0] + p[1]) + 1e-4
    assert choose(logits, [0.0, 0.5, 0.5, 0.5], [0.0, low, float(p[0]) + 1e-4, high]) == [
        2,
        0,
        1,
        2,
    ]


def test_frequencies_of_many_draws_are_the_probabilities() -> None:
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    count = 4000
    rows = p.expand(count, -1)
    tokens = inverse(rows, [uniform(0, "x", i) for i in range(count)])
    shares = torch.bincount(tokens, minlength=4) / count
    assert torch.allclose(shares, p, atol=0.03)
    assert shares[1] == 0


def test_the_last_place_of_the_mass_is_no_token_without_mass() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0]])
    assert inverse(weights, [1.0]).tolist() == [1]


def test_a_nucleus_leaves_out_the_unlikely() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    drawn = {choose_nucleus(logits, 0.8, [i / 100])[0] for i in range(100)}
    assert drawn == {0, 1}
    assert {choose_nucleus(logits, 1.0, [i / 100])[0] for i in range(100)} == {0, 1, 2, 3}
