"""A head run row by row over a cache gives what its training forward gives over whole texts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outrider.models.heads.eagle import EagleHead
from outrider.models.heads.eagle_lean import LeanEagle
from outrider.models.heads.eagle_torch import TorchEagle
from outrider.models.heads.rows import EagleRunner, Rows
from tests.heads import tiny_eagle
from tests.tiny import tiny_model

KINDS: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "eagle1": {"kind": "eagle"},
    "eagle3.1": {"norm_output": True, "fc_norm": True, "norm_before_residual": True},
    "qwen3-like": {"qk_norm": True, "norm_before_fc": True},
}
LENGTH, TAPPED = 9, 64


@pytest.fixture(params=KINDS)
def head(request: pytest.FixtureRequest) -> EagleHead:
    return tiny_eagle(tiny_model(layers=6, hidden=64), **KINDS[request.param]).eval()


@pytest.fixture(params=["torch", "lean", "int8"])
def runner(request: pytest.FixtureRequest, head: EagleHead) -> EagleRunner:
    if request.param == "torch":
        return TorchEagle(head)
    return LeanEagle(head, torch.float32 if request.param == "lean" else torch.int8, 1 << 22)


def _close(runner: EagleRunner, found: torch.Tensor, expected: torch.Tensor) -> None:
    loose = isinstance(runner, LeanEagle) and runner.kind == torch.int8
    if loose:
        error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert error.max() < 0.2
    else:
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


def _text(head: EagleHead) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    width = len(head.config.taps) * TAPPED
    tokens = torch.randint(0, head.config.vocab_size, (1, LENGTH), generator=generator)
    return tokens, torch.randn(1, LENGTH, width, generator=generator)


@torch.no_grad()
def test_prefill_in_slices_gives_the_first_step_of_the_training_forward(
    head: EagleHead, runner: EagleRunner
) -> None:
    tokens, features = _text(head)
    expected = head.head_input(head.unroll(tokens, features, 1)[0])[0, :-1]
    cache, behind = runner.new_cache(), tokens[0, 1:].tolist()
    g = runner.fuse(features[0, :-1].numpy())
    first = runner.forward([Rows(cache, behind[:5], g[:5])]).states
    second = runner.forward([Rows(cache, behind[5:], g[5:])]).states
    _close(runner, torch.cat([first, second]), expected)


@torch.no_grad()
def test_drafting_from_every_row_gives_the_later_steps_of_the_training_forward(
    head: EagleHead, runner: EagleRunner
) -> None:
    steps = 3
    tokens, features = _text(head)
    expected = [head.head_input(states)[0] for states in head.unroll(tokens, features, steps)]
    for row in range(LENGTH - steps):
        cache = runner.new_cache()
        g = runner.fuse(features[0, : row + 1].numpy())
        out = runner.forward([Rows(cache, tokens[0, 1 : row + 2].tolist(), g)])
        for step in range(1, steps):
            token = int(tokens[0, row + 1 + step])
            out = runner.forward([Rows(cache, [token], out.g[-1:])])
            _close(runner, out.states[-1], expected[step][row])


@torch.no_grad()
def test_rows_of_a_branch_see_their_own_path_only(head: EagleHead, runner: EagleRunner) -> None:
    tokens, features = _text(head)
    g = runner.fuse(features[0, :4].numpy())
    behind = tokens[0, 1:5].tolist()

    def chain(*drafted: int) -> torch.Tensor:
        cache = runner.new_cache()
        out = runner.forward([Rows(cache, behind, g)])
        for token in drafted:
            out = runner.forward([Rows(cache, [token], out.g[-1:])])
        return out.states[-1]

    cache = runner.new_cache()
    root = runner.forward([Rows(cache, behind, g)])
    fed = root.g[-1:].repeat(2, 1)
    level = runner.forward([Rows(cache, [7, 9], fed, base=4, paths=[(), ()])])
    again = level.g[torch.tensor([1, 0, 1])]
    leaves = runner.forward([Rows(cache, [3, 5, 11], again, base=4, paths=[(5,), (4,), (5,)])])
    found = torch.cat([level.states, leaves.states])
    paths = [(7,), (9,), (9, 3), (7, 5), (9, 11)]
    _close(runner, found, torch.stack([chain(*path) for path in paths]))


@torch.no_grad()
def test_a_row_does_not_depend_on_its_company(head: EagleHead, runner: EagleRunner) -> None:
    tokens, features = _text(head)
    g = runner.fuse(features[0, :-1].numpy())
    behind = tokens[0, 1:].tolist()
    alone = runner.forward([Rows(runner.new_cache(), behind[:3], g[:3])]).states
    both = runner.forward(
        [Rows(runner.new_cache(), behind[3:], g[3:]), Rows(runner.new_cache(), behind[:3], g[:3])]
    ).states[-3:]
    torch.testing.assert_close(both, alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_feature_paired_with_the_wrong_token_changes_the_states(head: EagleHead) -> None:
    tokens, features = _text(head)
    right = head.unroll(tokens, features, 1)[0][0, 3]
    wrong = head.unroll(tokens.roll(1, dims=1), features, 1)[0][0, 3]
    assert not torch.allclose(right, wrong, atol=1e-2)


@torch.no_grad()
def test_padding_changes_no_row_that_counts(head: EagleHead) -> None:
    tokens, features = _text(head)
    padded = torch.cat([tokens, torch.full((1, 4), 3)], dim=1)
    wider = torch.nn.functional.pad(features, (0, 0, 0, 4), value=1e3)
    for step, (a, b) in enumerate(
        zip(head.unroll(tokens, features, 3), head.unroll(padded, wider, 3), strict=True)
    ):
        kept = slice(LENGTH - 1 - step)
        torch.testing.assert_close(a[:, kept], b[:, kept], rtol=1e-3, atol=1e-3)
