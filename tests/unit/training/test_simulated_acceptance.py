"""Acceptance lengths told from ranks, against drafting for real."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tests.unit.training.material import CPU, World, world
from training.batches import Dataset
from training.evaluate import ABSENT, evaluate
from training.ranks import (
    accuracies,
    best_tree,
    chain_length,
    cross_fit_tree_length,
    tree_length,
)
from training.records import Record


def greedy_texts(family: str) -> list[Record]:
    return [r for r in world(family).records if r.mode == "greedy" and len(r.response) > 2]


def drafted_lengths(here: World, texts: list[Record], drafted: int) -> float:
    """Rounds played with a draft model that really writes its chain, token by token."""
    learner = here.learner(dropout=0.0)
    ids_of_rows = here.material.vocabulary.ids
    rounds = tokens = 0
    for record in texts:
        text = record.ids.tolist()
        known = record.prompt_length + 1  # the prompt's own pass gave the first token
        while known < len(text):
            chain: list[int] = []
            for _ in range(drafted):
                with torch.no_grad():
                    states = learner.module(torch.tensor([text[:known] + chain])).last_hidden_state
                    logits = learner.head(0).logits(states[0, -1:])
                chain.append(int(ids_of_rows[int(logits.argmax())]))
            accepted = 0
            while (
                accepted < drafted
                and known + accepted < len(text)
                and chain[accepted] == text[known + accepted]
            ):
                accepted += 1
            emitted = min(accepted + 1, len(text) - known)
            known += emitted
            tokens += emitted
            rounds += 1
    return tokens / rounds


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("drafted", [1, 3])
def test_a_simulated_chain_is_as_long_as_one_that_is_drafted(family: str, drafted: int) -> None:
    here = world(family)
    texts = greedy_texts(family)
    data = Dataset(texts, here.material.train.features, (), 64, CPU)
    material = here.material
    ids = torch.from_numpy(material.vocabulary.ids)
    row_of, target = material.vocabulary.row_of, material.target_head
    found = evaluate(here.learner(), data, row_of, target, ids)
    length = drafted_lengths(here, texts, drafted)
    assert found.chain[drafted] == pytest.approx(length)
    assert length > 1.02  # or else nothing was compared
    assert found.sequences == len(texts)


def test_the_whole_target_with_all_rows_agrees_always_and_overlaps_wholly() -> None:
    from training.draft_model import DraftModelLearner
    from training.vocabulary import DraftVocabulary

    here = world()
    vocabulary = DraftVocabulary(np.arange(64), 64)
    learner = DraftModelLearner(here.model, (0, 1, 2), vocabulary, here.parts)
    data = Dataset(here.records, here.material.train.features, (), 64, CPU)
    head = here.material.target_head
    found = evaluate(learner, data, vocabulary.row_of, head, torch.arange(64))
    assert found.first > 0.99
    assert found.chain[5] > found.chain[2] > 2.5
    assert all(overlap > 0.99 for overlap in found.overlap)
    assert found.sampled_chain > 4.9


def ranks(seed: int = 0, texts: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.choice([0, 0, 0, 1, 2, ABSENT], (30, 3)) for _ in range(texts)]


def test_a_chain_is_a_tree_with_one_path() -> None:
    path = frozenset({(0,), (0, 0), (0, 0, 0)})
    assert tree_length(ranks(), path) == chain_length(ranks(), 3)


def test_the_best_tree_is_the_best_of_all_trees_of_its_size() -> None:
    shares = accuracies(ranks(), width=3)

    def value(tree: frozenset[tuple[int, ...]]) -> float:
        return sum(float(np.prod([shares[d, r] for d, r in enumerate(path)])) for path in tree)

    paths = [p for n in (1, 2, 3) for p in itertools.product(range(3), repeat=n)]
    found = best_tree(shares, 4)
    trees = (
        frozenset(tree)
        for tree in itertools.combinations(paths, 4)
        if all(path[:-1] in tree or len(path) == 1 for path in tree)
    )
    assert found in set(trees := set(trees))
    assert value(found) == pytest.approx(max(map(value, trees)))


def test_more_nodes_are_longer_trees_and_tokens_behind_the_end_do_not_count() -> None:
    lengths = [cross_fit_tree_length(ranks(), nodes) for nodes in (1, 4, 12)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
    right = [np.zeros((7, 5), np.int64)]
    assert chain_length(right, 4) == 7 / 2  # rounds of 5 and 2 tokens
