"""The medusa drafter against its heads' own logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from draft_service.drafters.medusa import MedusaDrafter
from draft_service.drafters.medusa_tree import places, usual
from outrider.core.coupling import gumbel
from outrider.core.round import Budget, Features, SamplingParams
from outrider.core.sampling import probabilities
from outrider.drafting.base import DraftSession
from outrider.models.heads.medusa_runner import LeanMedusa, MedusaRunner, TorchMedusa
from tests.heads import tiny_medusa
from tests.tiny import tiny_model

GREEDY = SamplingParams(temperature=0.0)
LAYERS, HEADS = 2, 3
TARGET = tiny_model(hidden=64)
HEADS_MODULE = tiny_medusa(TARGET, layers=2, root_embedding=True).eval()
STATES = torch.randn(20, 64, generator=torch.Generator().manual_seed(4)).bfloat16()
TEXT = list(range(20))


def _features(*positions: int) -> list[Features]:
    return [
        Features(p, 1, 64, STATES[p : p + 1].view(torch.uint8).numpy().tobytes()) for p in positions
    ]


@pytest.fixture(params=["torch", "lean", "own heads"])
def runner(request: pytest.FixtureRequest) -> MedusaRunner:
    if request.param == "lean":
        return LeanMedusa(HEADS_MODULE, torch.float32)
    if request.param == "own heads":
        heads = tiny_medusa(TARGET, layers=2, shared=False, root_embedding=True)
        return LeanMedusa(heads, torch.float32)
    return TorchMedusa(HEADS_MODULE)


@torch.no_grad()
def _logits(position: int) -> np.ndarray:
    """[heads, draft vocabulary] of the state at a position, and the token behind it."""
    root = torch.tensor(TEXT[position + 1])
    logits: np.ndarray = HEADS_MODULE.logits(STATES[position].float(), root).numpy()
    return logits


def _best(head: int, position: int) -> int:
    return int(HEADS_MODULE.draft_ids[int(_logits(position)[head].argmax())])


def _drafter(runner: MedusaRunner) -> MedusaDrafter:
    return MedusaDrafter(runner, HEADS_MODULE.config, LAYERS)


def _session(
    drafter: MedusaDrafter,
    length: int,
    positions: Sequence[int],
    sampling: SamplingParams = GREEDY,
) -> DraftSession:
    session = drafter.open(TEXT[:length], sampling)
    drafter.observe(session, [], _features(*positions))
    return session


def test_it_asks_for_the_final_state_of_the_last_row() -> None:
    spec = _drafter(TorchMedusa(HEADS_MODULE)).features
    assert spec is not None
    assert (spec.taps, spec.window) == ((LAYERS,), 1)


def test_a_chain_has_the_best_token_of_each_head(runner: MedusaRunner) -> None:
    drafter = _drafter(runner)
    sessions = [_session(drafter, n, range(n - 1)) for n in (4, 9)]
    proposals = drafter.propose([(s, Budget(3, 3)) for s in sessions])
    for length, proposal in zip((4, 9), proposals, strict=True):
        assert proposal.tree.tokens[1:] == tuple(_best(k, length - 2) for k in range(HEADS))
        assert proposal.tree.is_chain


def test_the_token_behind_the_state_decides_where_heads_read_it(runner: MedusaRunner) -> None:
    states = STATES[:1].float().numpy()
    one, other = (runner.logits(states, [root], HEADS) for root in (1, 2))
    assert not np.allclose(one, other)
    blind = LeanMedusa(tiny_medusa(TARGET, layers=2), torch.float32)
    assert np.array_equal(blind.logits(states, [1], HEADS), blind.logits(states, [2], HEADS))


def test_a_tree_takes_the_ranks_of_the_optimiser(runner: MedusaRunner) -> None:
    drafter = _drafter(runner)
    session = _session(drafter, 7, range(6))
    proposal = drafter.propose([(session, Budget(3, 10))])[0]
    order = np.argsort(-_logits(5), axis=1)
    for node, place in enumerate(places(usual(HEADS), 3, 10), 1):
        token = int(HEADS_MODULE.draft_ids[int(order[place.level, place.rank])])
        assert proposal.tree.tokens[node] == token
        assert proposal.tree.parents[node] == place.parent


def test_measured_accuracies_shape_the_tree() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    drafter._accuracies = ((0.9, 0.001), (0.8, 0.001), (0.7, 0.001))
    session = _session(drafter, 7, range(6))
    assert drafter.propose([(session, Budget(3, 4))])[0].tree.depths == (0, 1, 2, 3, 1)


def test_a_tree_tells_its_chances_and_leaves_out_those_that_are_too_small() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    drafter._accuracies = ((0.9, 0.1), (0.8, 0.1), (0.5, 0.1))
    session = _session(drafter, 7, range(6))
    whole = drafter.propose([(session, Budget(3, 4))])[0]
    assert whole.chances == pytest.approx((1.0, 0.9, 0.72, 0.36, 0.1))
    few = drafter.propose([(session, Budget(3, 4, least_node=0.4))])[0]
    assert few.chances == pytest.approx((1.0, 0.9, 0.72))
    assert few.tree.tokens == whole.tree.tokens[:3]
    assert drafter.propose([(session, Budget(3, 3))])[0].chances == ()


def test_an_older_state_serves_with_the_heads_that_reach_far_enough() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    session = _session(drafter, 7, [4])
    assert drafter.propose([(session, Budget(3, 3))])[0].tree.tokens[1:] == (
        _best(1, 4),
        _best(2, 4),
    )
    assert drafter.propose([(_session(drafter, 9, [4]), Budget(3, 3))])[0].tree.drafted == 0


def test_without_a_state_nothing_is_proposed() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    session = drafter.open(TEXT[:7], GREEDY)
    other = _session(drafter, 4, range(3))
    empty, full = drafter.propose([(session, Budget(3, 3)), (other, Budget(2, 2))])
    assert empty.tree.drafted == 0
    assert full.tree.drafted == 2


def test_a_seeded_request_takes_the_targets_noise_and_declares_nothing() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    sampling = SamplingParams(temperature=0.7, seed=5)
    session = _session(drafter, 7, range(6), sampling)
    proposal = drafter.propose([(session, Budget(3, 3))])[0]
    ids = HEADS_MODULE.draft_ids.numpy()
    for level, row in enumerate(_logits(5)):
        scores = np.log(probabilities(row, sampling)) + gumbel(5, 0, 7 + level, ids)
        assert proposal.tree.tokens[1 + level] == ids[scores.argmax()]
    assert not proposal.drawn_from


def test_a_sampled_request_gets_children_that_were_not_drawn() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    session = _session(drafter, 7, range(6), SamplingParams())
    proposals = [drafter.propose([(session, Budget(2, 5))])[0] for _ in range(2)]
    assert proposals[0].tree == proposals[1].tree
    assert not proposals[0].drawn_from


def test_heads_that_are_unsure_end_the_draft() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    session = _session(drafter, 7, range(6))
    assert drafter.propose([(session, Budget(3, 8, p_min=1.0))])[0].tree.drafted == 0


def test_states_that_no_head_can_use_are_forgotten() -> None:
    drafter = _drafter(TorchMedusa(HEADS_MODULE))
    session = _session(drafter, 4, range(3))
    drafter.observe(session, TEXT[4:12], _features(3, 10))
    assert 3 not in session.state.features
    assert 10 in session.state.features
