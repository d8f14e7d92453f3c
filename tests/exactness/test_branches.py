"""Every way in which a round can end occurs in runs like those of the other tests, often."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest
from same_text import GREEDY, SEEDED, TARGET, UNSEEDED

from orchestrator import loop
from orchestrator.report import Report
from outrider.core.acceptance import Decision, Kind, Uniform, decide
from outrider.core.round import Evidence, SamplingParams, TruncatedDistribution
from outrider.core.tree import TokenTree
from tests.local.drafters import LocalDraft, draft_model
from tests.local.generation import fixed, generate
from tests.local.memo_lm import noisy
from tests.local.verifiers import LocalTarget

LEAST = 50
TOKENS = 49
REJECTED = [f"rejected at depth {depth}" for depth in range(1, 9)]
MATCH = {"all 8 accepted", *REJECTED, "bonus", "second sibling"}
REJECTION = {*MATCH, "residual inside the m ids", "residual outside the m ids"}


class Census:
    """Counts how rounds ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def decide(
        self,
        tree: TokenTree,
        drawn_from: Mapping[int, TruncatedDistribution],
        evidence: Evidence,
        uniform: Uniform,
    ) -> Decision:
        """Stands in the loop where `decide` does."""
        decision = decide(tree, drawn_from, evidence, uniform)
        depth, last = len(decision.accepted), decision.accepted[-1] if decision.accepted else 0
        self.counts["kept"] += depth
        if depth == 8:
            self.counts["all 8 accepted"] += 1
        if decision.kind is Kind.BONUS:
            self.counts["bonus"] += 1
        if decision.kind is Kind.RECOVERED:
            self.counts[f"rejected at depth {depth + 1}"] += 1
            if last in drawn_from:
                inside = decision.emitted in drawn_from[last].ids
                self.counts[f"residual {'inside' if inside else 'outside'} the m ids"] += 1
        second = any(
            tree.children[tree.parents[node]].index(node) == 1 for node in decision.accepted
        )
        self.counts["second sibling"] += second
        return decision


async def runs(draft: LocalDraft, sampling: SamplingParams, nodes: int, requests: int) -> None:
    """Requests at once, of fixed depth 8."""
    target = LocalTarget(TARGET)

    async def one(number: int) -> Report:
        prompt = [number % 8, number // 8 % 8, number // 64]
        params = sampling if sampling.seed is None else SamplingParams(seed=number)
        verifier, drafter = target.open(prompt, params, TOKENS), draft.open(prompt, params)
        report = (await generate(prompt, verifier, drafter, fixed(8, nodes), TOKENS)).report
        assert report.drafted > 0
        return report

    reports = await asyncio.gather(*map(one, range(requests)))
    assert sum(report.accepted for report in reports) > 0


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [(GREEDY, MATCH), (SEEDED, MATCH), (UNSEEDED, REJECTION)],
    ids=["greedy", "seeded", "drawn"],
)
async def test_each_branch_occurs_fifty_times(
    sampling: SamplingParams, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains and trees, drafted by the target itself and by copies with noise."""
    census = Census()
    monkeypatch.setattr(loop, "decide", census.decide)
    await runs(draft_model(TARGET), sampling, 8, 20)
    if sampling is not UNSEEDED:  # q~ has fewer ids than p, so draws are refused even where q is p
        assert not any(census.counts[branch] for branch in REJECTED)
    for noise, nodes, requests in ((0.05, 8, 180), (0.1, 16, 60)):
        await runs(draft_model(noisy(TARGET, noise)), sampling, nodes, requests)
    kept, refused = census.counts["kept"], sum(census.counts[branch] for branch in REJECTED)
    assert 0.5 < kept / (kept + refused) < 0.9
    assert {
        branch: census.counts[branch] for branch in expected if census.counts[branch] < LEAST
    } == {}
