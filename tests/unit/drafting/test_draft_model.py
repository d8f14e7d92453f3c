from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from fake_model import FakeModel
from scipy import stats

from draft_service.drafters.draft_model import DraftModelDrafter
from outrider.core.coupling import seeded_draw
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.sampling import probabilities, truncate
from outrider.core.tree import TokenTree
from outrider.drafting.base import DraftSession

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.8, seed=11, choice=2)
SAMPLED = SamplingParams()
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def drafter(**model: float) -> DraftModelDrafter:
    return DraftModelDrafter(FakeModel(**model))  # type: ignore[arg-type]


def propose(one: DraftModelDrafter, session: DraftSession, budget: Budget) -> Proposal:
    return one.propose([(session, budget)])[0]


def opened(one: DraftModelDrafter, tokens: list[int], sampling: SamplingParams) -> DraftSession:
    session = one.open(tokens, sampling)
    assert one.prefill(session)
    return session


def fresh_tree(tokens: list[int], sampling: SamplingParams, budget: Budget) -> TokenTree:
    one = drafter()
    return propose(one, opened(one, tokens, sampling), budget).tree


def test_greedy_chain_is_the_models_own_continuation() -> None:
    one = drafter()
    expected = list(PROMPT)
    for _ in range(5):
        expected.append(int(np.argmax(one.model.of(expected))))  # type: ignore[attr-defined]
    tree = propose(one, opened(one, PROMPT, GREEDY), Budget(5, 5)).tree
    assert tree == TokenTree.chain(PROMPT[-1], expected[len(PROMPT) :])


def test_seeded_chain_is_what_a_target_with_the_same_weights_draws() -> None:
    one = drafter()
    expected = list(PROMPT)
    for _ in range(5):
        p = probabilities(one.model.of(expected), SEEDED)  # type: ignore[attr-defined]
        expected.append(seeded_draw(p, 11, 2, len(expected)))
    proposal = propose(one, opened(one, PROMPT, SEEDED), Budget(5, 5))
    assert proposal.tree == TokenTree.chain(PROMPT[-1], expected[len(PROMPT) :])
    assert not proposal.drawn_from


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("budget", [Budget(4, 4), Budget(4, 9)])
@pytest.mark.parametrize("accepted", range(5))
def test_after_any_acceptance_the_cache_is_as_good_as_a_fresh_one(
    sampling: SamplingParams, budget: Budget, accepted: int
) -> None:
    one = drafter()
    session = opened(one, PROMPT, sampling)
    for _ in range(4):
        tree = propose(one, session, budget).tree
        assert tree == fresh_tree(session.tokens, sampling, budget)
        spine = [tree.children[0][0]]
        while tree.children[spine[-1]]:
            spine.append(tree.children[spine[-1]][0])
        taken = [tree.tokens[node] for node in spine[:accepted]]
        one.observe(session, [*taken, 31])
        assert session.state.rows == session.state.cache.tokens


def test_accepted_sibling_beside_the_spine_is_fed_again() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    tree = propose(one, session, Budget(3, 6)).tree
    sibling = tree.children[0][1]
    one.observe(session, [tree.tokens[sibling], 7])
    assert propose(one, session, Budget(3, 6)).tree == fresh_tree(
        session.tokens, GREEDY, Budget(3, 6)
    )


def test_after_full_acceptance_two_tokens_are_fed() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    tree = propose(one, session, Budget(4, 4)).tree
    one.observe(session, [*tree.tokens[1:], 30])
    one.model.forwards.clear()  # type: ignore[attr-defined]
    propose(one, session, Budget(4, 4))
    assert one.model.forwards == [[2], [1], [1], [1]]  # type: ignore[attr-defined]


def test_repeated_request_without_new_tokens_gives_the_same_tree() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    assert propose(one, session, Budget(4, 4)).tree == propose(one, session, Budget(4, 4)).tree


def test_batch_gives_what_each_session_gets_alone_in_shared_forwards() -> None:
    one = drafter()
    prompts = [PROMPT, [8], [2, 7, 1, 8, 2, 8]]
    budgets = [Budget(4, 4), Budget(2, 2), Budget(3, 3)]
    samplings = [GREEDY, SEEDED, replace(SEEDED, seed=12)]
    sessions = [opened(one, p, s) for p, s in zip(prompts, samplings, strict=True)]
    one.model.forwards.clear()  # type: ignore[attr-defined]
    proposals = one.propose(list(zip(sessions, budgets, strict=True)))
    assert one.model.forwards == [[1, 1, 1], [1, 1, 1], [1, 1], [1]]  # type: ignore[attr-defined]
    for proposal, prompt, sampling, budget in zip(
        proposals, prompts, samplings, budgets, strict=True
    ):
        assert proposal.tree == fresh_tree(prompt, sampling, budget)


def test_prefill_works_in_slices_and_leaves_the_last_token() -> None:
    one = drafter()
    session = one.open(PROMPT, GREEDY)
    steps = [one.prefill(session, 3) for _ in range(3)]
    assert steps == [False, False, True]
    assert one.model.forwards == [[3], [3], [1]]  # type: ignore[attr-defined]
    assert propose(one, session, Budget(4, 4)).tree == fresh_tree(PROMPT, GREEDY, Budget(4, 4))


def test_draft_stops_at_the_models_context_length() -> None:
    one = drafter()
    session = opened(one, list(range(30)) * 2, GREEDY)
    assert propose(one, session, Budget(8, 8)).tree.drafted == 4
    one.observe(session, [1, 2, 3, 4])
    assert propose(one, session, Budget(8, 8)).tree.drafted == 0
    one.observe(session, [5, 6])
    assert one.prefill(session)
    assert propose(one, session, Budget(8, 8)).tree == TokenTree.root_only(6)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, SAMPLED])
def test_unconfident_model_proposes_nothing_above_p_min(sampling: SamplingParams) -> None:
    flat = drafter(sharpness=0.01)
    session = opened(flat, PROMPT, sampling)
    assert propose(flat, session, Budget(4, 4, p_min=0.5)).tree.drafted == 0
    assert propose(flat, session, Budget(4, 4, p_min=0.0)).tree.drafted == 4


def test_draft_without_time_left_ends_after_one_level() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    assert propose(one, session, Budget(4, 4, time_left_s=0.0)).tree.drafted == 1


@pytest.mark.parametrize("ids", [None, np.arange(5, 37)])
def test_a_greedy_tree_holds_the_likeliest_paths(ids: np.ndarray | None) -> None:
    depth, nodes, width, branch = 3, 9, 4, 8
    one = DraftModelDrafter(FakeModel(vocab_size=32), ids)  # type: ignore[arg-type]
    names = np.arange(32) if ids is None else ids
    frontier: list[tuple[int, ...]] = [()]
    scores: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(depth):
        level = {}
        for path in frontier:
            q = probabilities(one.model.of([*PROMPT, *path]), SAMPLED)  # type: ignore[attr-defined]
            for row in np.argsort(-q)[:branch]:
                level[*path, int(names[row])] = scores[path] + float(np.log(q[row]))
        scores |= level
        frontier = sorted(level, key=lambda path: -level[path])[:width]
    best = sorted((path for path in scores if path), key=lambda path: -scores[path])[:nodes]
    tree = propose(one, opened(one, PROMPT, GREEDY), Budget(depth, nodes)).tree
    found = {tuple(tree.tokens[n] for n in tree.path(leaf)) for leaf in range(1, len(tree))}
    assert found == set(best)


def test_a_tree_leaves_only_committed_rows_behind() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    propose(one, session, Budget(3, 9))
    assert session.state.cache.tokens == PROMPT


def test_close_frees_the_cache() -> None:
    one = drafter()
    session = opened(one, PROMPT, GREEDY)
    cache = session.state.cache
    one.close(session)
    assert cache.freed


def draws(m: int, count: int) -> tuple[Counter[tuple[int, ...]], np.ndarray, np.ndarray]:
    """Children of the root in draw order over many proposals, and the q~ declared.

    Ids and probabilities.
    """
    one = drafter(vocab_size=8, sharpness=1.0)
    session = opened(one, [3, 1, 4], SAMPLED)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(20_000 if count == 1 else 6_000):
        proposal = propose(one, session, Budget(1, count, m=m))
        seen[tuple(proposal.tree.tokens[1:])] += 1
        q = proposal.drawn_from[0]
    expected = truncate(probabilities(one.model.of([3, 1, 4]), SAMPLED), m)  # type: ignore[attr-defined]
    assert np.array_equal(q.ids, expected.ids)
    assert np.array_equal(q.probabilities, expected.probabilities)
    return seen, q.ids, q.probabilities


def g_test(seen: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    assert set(seen) <= set(law)
    total = sum(seen.values())
    observed = [seen[key] for key in law]
    return float(
        stats.power_divergence(observed, [total * p for p in law.values()], lambda_=0).pvalue
    )


def test_sampled_children_follow_the_declared_distribution() -> None:
    seen, ids, p = draws(m=4, count=1)
    assert g_test(seen, {(int(i),): w for i, w in zip(ids, p, strict=True)}) > 1e-4
    wrong = np.roll(p, 1)
    assert g_test(seen, {(int(i),): w for i, w in zip(ids, wrong, strict=True)}) < 1e-6


def test_sampled_siblings_are_drawn_without_replacement() -> None:
    seen, ids, p = draws(m=4, count=2)
    q = dict(zip(ids.tolist(), p.tolist(), strict=True))
    law = {(a, b): q[a] * q[b] / (1 - q[a]) for a, b in permutations(q, 2)}
    assert g_test(seen, law) > 1e-4
    uniform_second = {(a, b): q[a] / 3 for a, b in permutations(q, 2)}
    assert g_test(seen, uniform_second) < 1e-6


def test_sampled_comb_declares_a_distribution_for_each_spine_node_only() -> None:
    one = drafter()
    proposal = propose(one, opened(one, PROMPT, SAMPLED), Budget(3, 7, m=5))
    tree = proposal.tree
    assert [len(tree.children[node]) for node in proposal.drawn_from] == [3, 2, 2]
    assert {node for node in range(len(tree)) if tree.children[node]} == set(proposal.drawn_from)
    for node, q in proposal.drawn_from.items():
        assert len(q.ids) == 5
        assert {tree.tokens[child] for child in tree.children[node]} <= set(q.ids.tolist())
