"""A fixed slice of the greedy sweep over real services and the real model, float32.

`tests.sweep` runs it whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider.cli.cluster import Cluster
from tests import prompts as own
from tests.greedy import Reference, drafter_flags, run

TOKENS = 32


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[list[int]]:
    """Eight prompts: one of each kind, one of a single token, one of 1,500."""
    ids = [reference.encode(p.prompt, chat=True) for p in own.interleaved(6)]
    edges = [own.one_token()[1], own.long(1)[0]]
    return ids + [reference.encode(p.prompt, chat=False) for p in edges]


@pytest.fixture(scope="module")
def expected(reference: Reference, prompts: list[list[int]]) -> list[list[int]]:
    return [reference.generate(prompt, TOKENS) for prompt in prompts]


@pytest.fixture(scope="module", params=["cut", "noisy", "self"])
def variant(request: pytest.FixtureRequest) -> Iterator[tuple[str, Cluster]]:
    with Cluster(
        drafters=drafter_flags(request.param),
        dtype="float32",
        arguments={"target": ["--no-profile"]},
    ) as cluster:
        yield request.param, cluster


@pytest.mark.timeout(600)
def test_greedy_texts_equal_plain_and_transformers(
    variant: tuple[str, Cluster],
    reference: Reference,
    prompts: list[list[int]],
    expected: list[list[int]],
) -> None:
    name, cluster = variant
    settings = [("draft_model", k, 8) for k in (1, 4, 8)]
    if name == "cut":
        settings += [("plain", 0, 8), ("plain", 0, 1), ("ngram", 4, 1)]
        settings += [("ngram", k, 8) for k in (1, 4, 8)]
    if name == "noisy":
        settings += [("draft_model", 4, 1)]
    for method, k, streams in settings:
        results = run(cluster.address, prompts, method, k, streams, TOKENS)
        for index, result in enumerate(results):
            difference = reference.compare(prompts[index], expected[index], result.token_ids)
            assert difference is None, (
                f"{name} {method} K={k} x{streams} prompt {index}: {difference}"
            )
        if k:
            assert sum(result.speculation.drafted for result in results) > 0
        if method == "ngram" and k > 1:
            assert sum(result.speculation.accepted for result in results) > 0
        if method == "draft_model":  # the untrained cut may agree with the target nowhere
            rate = sum(r.speculation.accepted for r in results) / sum(
                r.speculation.drafted for r in results
            )
            assert {"cut": rate < 0.5, "noisy": 0.1 < rate < 0.9, "self": rate > 0.9}[name], rate


@pytest.mark.timeout(600)
def test_every_drafter_that_comes_with_the_target_gives_its_texts(
    reference: Reference, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    """Trained checkpoints among them, chains and trees."""
    chains = [(method, 4, 4) for method in ("eagle", "medusa")]
    trees = [(method, 4, 12) for method in ("eagle", "medusa", "draft_model", "lookahead", "auto")]
    with Cluster(dtype="float32", arguments={"target": ["--no-profile"]}) as cluster:
        for method, k, nodes in chains + trees:
            results = run(cluster.address, prompts, method, k, 8, TOKENS, nodes)
            for index, result in enumerate(results):
                difference = reference.compare(prompts[index], expected[index], result.token_ids)
                assert difference is None, f"{method} {nodes} nodes prompt {index}: {difference}"
            assert sum(result.speculation.accepted for result in results) > 0, method
