"""Whatever the controller does, the text is the target's own: K changes in every round, 0 among
them, with shadow drafts beside the free runs."""

import random

import pytest
from same_text import (
    DRAFTS,
    GREEDY,
    PROMPT,
    SEEDED,
    TARGET,
    TOKENS,
    drafter,
    own_text,
    running_engine,
)

from orchestrator.adaptive import AdaptiveDepth
from orchestrator.knowledge import DraftCosts, TargetCosts
from orchestrator.loop import Limits, Loop
from orchestrator.report import Report
from orchestrator.shadow import Shadow
from orchestrator.state import Bounds, Choice
from orchestrator.survival import Counts, Survival
from outrider.core.acceptance import Kind
from outrider.core.round import Budget, Proposal
from tests.local.drafters import LocalDrafter
from tests.local.verifiers import EngineVerifier, LocalTarget, LocalVerifier

SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED}
ways = pytest.mark.parametrize(
    ("sampling", "name"), [(sampling, name) for sampling in SAMPLINGS for name in DRAFTS]
)


class Restless:
    """Another K every time it is asked, and a shadow draft whenever it may."""

    def __init__(self, seed: int, nodes: int = 0) -> None:
        self.random = random.Random(seed)
        self.nodes = nodes
        self.shadows: list[tuple[int, int]] = []

    def calls(self, remaining: int) -> bool:
        return True

    def choose(self, remaining: int) -> Budget | None:
        depth = min(self.random.choice([0, 0, 1, 2, 3, 5, 8]), remaining - 1)
        return Budget(depth, depth + self.nodes, m=4, time_left_s=1e6) if depth > 0 else None

    def shadow(self, remaining: int) -> Budget | None:
        depth = min(self.random.choice([1, 2, 4]), remaining - 1)
        return Budget(depth, depth, m=4, time_left_s=1e6) if depth > 0 else None

    def drafted(self, budget: Budget, proposal: Proposal | None, waited_s: float) -> None:
        pass

    def shadowed(self, budget: Budget, proposal: Proposal | None, compared: int, kept: int) -> None:
        assert kept <= compared <= budget.depth
        self.shadows.append((compared, kept))


async def generate(
    verifier: LocalVerifier | EngineVerifier,
    draft: LocalDrafter,
    controller: Restless | AdaptiveDepth,
    tokens: int = TOKENS,
) -> tuple[tuple[int, ...], list[Kind], Report]:
    report, shadow = Report(), Shadow(draft, controller)
    witnesses = (controller,) if isinstance(controller, AdaptiveDepth) else ()
    uniform = random.Random(3).random
    loop = Loop(
        list(PROMPT),
        Limits(tokens),
        verifier,
        draft,
        controller,
        uniform,
        report,
        witnesses,
        shadow,
    )
    commits = [committed async for committed in loop.run()]
    shadow.close()
    assert [committed.finished for committed in commits].index(True) == len(commits) - 1
    text = tuple(token for committed in commits for token in committed.tokens)
    return text, [kind for committed in commits for kind in committed.kinds], report


@ways
@pytest.mark.parametrize("nodes", [0, 3])
async def test_a_k_that_changes_in_every_round_gives_the_targets_own_text(
    sampling: str, name: str, nodes: int
) -> None:
    params = SAMPLINGS[sampling]
    expected = own_text(PROMPT, params, TOKENS)
    shadows, kinds = 0, set()
    for seed in range(6):
        controller = Restless(seed, nodes)
        verifier = LocalTarget(TARGET).open(PROMPT, params, TOKENS, lag=seed % 3)
        text, found, _ = await generate(verifier, drafter(name, PROMPT, params), controller)
        assert text == expected, seed
        shadows += len(controller.shadows)
        kinds |= set(found[1:])
    assert shadows > 0
    assert {Kind.PLAIN, Kind.RECOVERED} & kinds


async def test_shadow_drafts_of_the_targets_own_weights_agree_and_a_strangers_do_not() -> None:
    def rate(shadows: list[tuple[int, int]]) -> float:
        return sum(kept for _, kept in shadows) / sum(compared for compared, _ in shadows)

    found = {}
    for name in ("own weights", "stranger"):
        shadows = []
        for seed in range(8):
            controller = Restless(seed)
            verifier = LocalTarget(TARGET).open(PROMPT, GREEDY, TOKENS)
            await generate(verifier, drafter(name, PROMPT, GREEDY), controller)
            shadows += controller.shadows
        found[name] = rate(shadows)
    assert found["own weights"] == 1.0
    assert found["stranger"] < 0.9


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_shadow_drafts_are_in_no_reported_count(sampling: str) -> None:
    class Never(Restless):
        def calls(self, remaining: int) -> bool:
            return True

        def choose(self, remaining: int) -> Budget | None:
            return None

    params = SAMPLINGS[sampling]
    controller = Never(1)
    verifier = LocalTarget(TARGET).open(PROMPT, params, TOKENS)
    text, kinds, report = await generate(
        verifier, drafter("own weights", PROMPT, params), controller
    )
    assert text == own_text(PROMPT, params, TOKENS)
    assert len(controller.shadows) > 1
    assert (report.drafted, report.accepted, report.rounds, report.draft_us) == (0, 0, 0, 0)
    assert set(kinds) == {Kind.PLAIN}


@ways
async def test_the_adaptive_controller_gives_the_targets_own_text_in_the_engine(
    sampling: str, name: str
) -> None:
    params = SAMPLINGS[sampling]
    tokens, whole = 3 * TOKENS, name == "lookahead"
    nodes = 12 if whole else 6
    reasons: list[Choice] = []
    target, costs, counts = TargetCosts(), DraftCosts(), Counts()
    async with running_engine() as engine:
        for _ in range(2):
            controller = AdaptiveDepth(
                Bounds(0, 6, nodes, 3, whole),
                Budget(6, nodes, m=4, time_left_s=1e6),
                Survival(counts, 6),
                target,
                costs,
                told=reasons.append,
                shadows=not whole,
            )
            verifier = EngineVerifier(engine, PROMPT, params, tokens)
            text, _, _ = await generate(verifier, drafter(name, PROMPT, params), controller, tokens)
            verifier.close()
            assert text == own_text(PROMPT, params, tokens)
    assert reasons
    assert target.verify.passes > 0
