"""The eagle drafter against the head's training forward, with and without its features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from draft_service.drafters.eagle import EagleDrafter
from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import DraftSession
from outrider.models.heads.eagle_lean import LeanEagle
from outrider.models.heads.eagle_torch import TorchEagle
from tests.heads import tiny_eagle
from tests.tiny import tiny_model

GREEDY = SamplingParams(temperature=0.0)
VOCAB, HIDDEN = 32, 64
TARGET = tiny_model(vocab=VOCAB, layers=6, hidden=HIDDEN)
HEAD = tiny_eagle(TARGET).eval()
WIDTH = HIDDEN * len(HEAD.config.taps)
TEXT = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(2)).tolist()
STATES = torch.randn(40, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()


def _features(start: int, end: int, states: torch.Tensor = STATES) -> Features:
    rows = states[start:end].contiguous()
    data = rows.view(torch.uint8).numpy().tobytes()
    return Features(start, end - start, rows.shape[1], data)


def _drafter(lean: bool = True) -> EagleDrafter:
    runner = LeanEagle(HEAD, torch.float32, 1 << 22) if lean else TorchEagle(HEAD)
    return EagleDrafter(runner, HEAD.config)


def _session(
    drafter: EagleDrafter, length: int, given: Sequence[Features], sampling: SamplingParams = GREEDY
) -> DraftSession:
    session = drafter.open(TEXT[:length], sampling)
    drafter.observe(session, [], given)
    return session


def _chain(drafter: EagleDrafter, session: DraftSession, depth: int = 4) -> tuple[int, ...]:
    return drafter.propose([(session, Budget(depth, depth))])[0].tree.tokens[1:]


@torch.no_grad()
def _log_q(tokens: Sequence[int], committed: int) -> np.ndarray:
    """log q [draft vocabulary] behind `tokens`, of which `committed` have features in front."""
    steps = len(tokens) - committed + 1
    ids = torch.tensor([[*tokens, 0]])
    states = torch.zeros(1, len(tokens) + 1, WIDTH)
    states[0, : committed - 1] = STATES[: committed - 1].float()
    y = HEAD.unroll(ids, states, steps)[-1][0, committed - 2]
    logq: np.ndarray = HEAD.logits(y).log_softmax(-1).numpy()
    return logq


def _reference_chain(length: int, depth: int = 4) -> tuple[int, ...]:
    tokens = list(TEXT[:length])
    for _ in range(depth):
        tokens.append(int(HEAD.draft_ids[int(_log_q(tokens, length).argmax())]))
    return tuple(tokens[length:])


@pytest.mark.parametrize("lean", [True, False])
def test_a_chain_is_what_the_training_forward_would_draft(lean: bool) -> None:
    drafter = _drafter(lean)
    for length in (2, 7, 19):
        session = _session(drafter, length, [_features(0, length - 1)])
        assert _chain(drafter, session) == _reference_chain(length)


def test_each_round_starts_from_the_true_features_of_what_was_accepted() -> None:
    drafter = _drafter()
    session = _session(drafter, 5, [_features(0, 4)])
    for end in (6, 9, 10, 14, 20):
        _chain(drafter, session)
        length = len(session.tokens)
        drafter.observe(session, TEXT[length:end], [_features(length - 1, end - 1)])
        assert _chain(drafter, session) == _reference_chain(end)
        assert _chain(drafter, session) == _reference_chain(end), "asked a second time"


def test_prefill_in_slices_changes_nothing() -> None:
    drafter = _drafter()
    session = drafter.open(TEXT[:20], GREEDY)
    assert drafter.prefill(session, 3), "without features there is nothing to work off"
    drafter.observe(session, [], [_features(0, 11), _features(11, 19)])
    slices = 1
    while not drafter.prefill(session, 3):
        slices += 1
    assert slices == 7
    assert _chain(drafter, session) == _reference_chain(20)


def test_sessions_of_a_batch_do_not_disturb_each_other() -> None:
    drafter = _drafter()
    lengths = (3, 12, 6)
    sessions = [_session(drafter, n, [_features(0, n - 1)]) for n in lengths]
    batch = [(s, Budget(d, n)) for s, d, n in zip(sessions, (4, 2, 3), (4, 9, 3), strict=True)]
    together = drafter.propose(batch)
    for (length, proposal), (_, budget) in zip(
        zip(lengths, together, strict=True), batch, strict=True
    ):
        alone = _session(drafter, length, [_features(0, length - 1)])
        assert drafter.propose([(alone, budget)])[0].tree == proposal.tree


def _paths(proposal: Proposal) -> set[tuple[int, ...]]:
    tree = proposal.tree
    return {tuple(tree.tokens[n] for n in tree.path(leaf)) for leaf in range(1, len(tree))}


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("length", [4, 11])
def test_a_tree_is_the_dynamic_tree_over_the_training_forward(lean: bool, length: int) -> None:
    depth, nodes, width, branch = 3, 9, 4, 8
    ids = HEAD.draft_ids.tolist()
    frontier: list[tuple[int, ...]] = [()]
    scores: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(depth):
        level = {}
        for path in frontier:
            log_q = _log_q([*TEXT[:length], *path], length)
            for row in np.argsort(-log_q)[:branch]:
                level[*path, ids[row]] = scores[path] + float(log_q[row])
        scores |= level
        frontier = sorted(level, key=lambda p: -level[p])[:width]
    drafted = sorted((p for p in scores if p), key=lambda p: (-scores[p], len(p)))
    drafter = _drafter(lean)
    session = _session(drafter, length, [_features(0, length - 1)])
    proposal = drafter.propose([(session, Budget(depth, nodes))])[0]
    assert _paths(proposal) == set(drafted[:nodes])
    assert not proposal.drawn_from


def test_a_sampled_tree_has_its_shape_before_the_draw_and_declares_the_law() -> None:
    drafter = _drafter()
    drafter._rng = np.random.default_rng(0)
    session = _session(drafter, 9, [_features(0, 8)], SamplingParams())
    proposal = drafter.propose([(session, Budget(3, 7, m=6))])[0]
    assert proposal.tree.parents == (-1, 0, 0, 0, 1, 1, 4, 4)
    assert set(proposal.drawn_from) == {0, 1, 4}
    q = np.exp(_log_q(TEXT[:9], 9))
    declared = proposal.drawn_from[0]
    likeliest = np.sort(np.argsort(-q)[:6])
    assert declared.ids.tolist() == HEAD.draft_ids.numpy()[likeliest].tolist()
    np.testing.assert_allclose(declared.probabilities, q[likeliest] / q[likeliest].sum(), rtol=1e-3)


def test_without_any_feature_nothing_is_proposed() -> None:
    drafter = _drafter()
    session = drafter.open(TEXT[:9], GREEDY)
    assert _chain(drafter, session) == ()
    drafter.observe(session, [], [_features(0, 8)])
    assert _chain(drafter, session) == _reference_chain(9)


def test_a_missing_last_feature_is_the_heads_own_prediction() -> None:
    drafter = _drafter()
    session = _session(drafter, 8, [_features(0, 6)])
    tokens = list(TEXT[:8])
    expected = int(HEAD.draft_ids[int(_log_q(tokens, 7).argmax())])
    assert _chain(drafter, session, 1) == (expected,)


def test_late_features_replace_predictions() -> None:
    drafter = _drafter()
    session = _session(drafter, 8, [_features(0, 5)])
    _chain(drafter, session)
    drafter.observe(session, [], [_features(5, 7)])
    assert _chain(drafter, session) == _reference_chain(8)


@pytest.mark.parametrize("given", [[(3, 6), (8, 11)], [(4, 5)], [(0, 2), (5, 6), (9, 11)]])
def test_gaps_are_bridged(given: list[tuple[int, int]]) -> None:
    drafter = _drafter()
    session = _session(drafter, 12, [_features(*part) for part in given])
    assert len(_chain(drafter, session)) == 4
    drafter.observe(session, TEXT[12:14], [_features(11, 13)])
    assert len(_chain(drafter, session)) == 4
    assert session.state.known[-2:] == [True, True]


def test_rows_of_another_width_are_left_alone() -> None:
    drafter = _drafter()
    session = _session(drafter, 6, [_features(0, 5, STATES[:, :HIDDEN])])
    assert _chain(drafter, session) == ()


def test_no_row_goes_beyond_the_context() -> None:
    drafter = _drafter()
    drafter._context = 12
    session = _session(drafter, 10, [_features(0, 9)])
    assert len(_chain(drafter, session)) == 2
    drafter.observe(session, TEXT[10:13], [_features(9, 12)])
    assert _chain(drafter, session) == ()


def test_a_draft_stops_where_its_time_is_over_or_it_is_unsure() -> None:
    drafter = _drafter()
    session = _session(drafter, 9, [_features(0, 8)])
    assert drafter.propose([(session, Budget(4, 4, time_left_s=0.0))])[0].tree.drafted == 1
    assert drafter.propose([(session, Budget(4, 4, p_min=1.0))])[0].tree.drafted == 0
    assert drafter.propose([(session, Budget(3, 9, p_min=1.0))])[0].tree.drafted == 0


def test_a_closed_session_gives_its_memory_back() -> None:
    drafter = _drafter()
    session = _session(drafter, 9, [_features(0, 8)])
    _chain(drafter, session)
    runner = drafter._runner
    assert isinstance(runner, LeanEagle)
    assert runner.pool.used == 1
    drafter.close(session)
    assert runner.pool.used == 0
