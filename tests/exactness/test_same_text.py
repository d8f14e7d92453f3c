"""Seeded and greedy text is the target's own, whatever happens on the way."""

from dataclasses import replace

import pytest
from same_text import (
    DRAFTS,
    GREEDY,
    PROMPT,
    SEEDED,
    TOKENS,
    alone,
    drafter,
    own_text,
    running_engine,
    together,
)

from outrider.core.acceptance import Kind
from outrider.core.round import SamplingParams
from tests.local.drafters import Faults
from tests.local.generation import Handover, Text, fixed

SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED}
DEPTHS = [1, 4, 8]
WAYS = [(sampling, name) for sampling in SAMPLINGS for name in DRAFTS]
ways = pytest.mark.parametrize(("sampling", "name"), WAYS)


def drafted_and_accepted(text: Text) -> bool:
    return text.report.accepted > 0 and text.report.drafted > text.report.accepted


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_without_drafts_the_text_is_the_targets_own(sampling: str) -> None:
    expected = own_text(PROMPT, SAMPLINGS[sampling], TOKENS)
    assert (await alone(SAMPLINGS[sampling], None, fixed(4))).tokens == expected
    text = await alone(
        SAMPLINGS[sampling], drafter("own weights", PROMPT, SAMPLINGS[sampling]), fixed(0)
    )
    assert text.tokens == expected
    assert set(text.kinds) == {Kind.PLAIN}
    assert len(set(expected)) > 3


@ways
@pytest.mark.parametrize("depth", DEPTHS)
async def test_any_drafter_and_depth_gives_the_targets_own_text(
    sampling: str, name: str, depth: int
) -> None:
    params = SAMPLINGS[sampling]
    text = await alone(params, drafter(name, PROMPT, params), fixed(depth))
    assert text.tokens == own_text(PROMPT, params, TOKENS)
    assert text.report.accepted > 0
    if name == "own weights":
        assert text.report.accepted == text.report.drafted


@ways
@pytest.mark.parametrize(("depth", "nodes"), [(1, 3), (3, 9), (4, 6)])
async def test_trees_give_the_targets_own_text(
    sampling: str, name: str, depth: int, nodes: int
) -> None:
    params = SAMPLINGS[sampling]
    text = await alone(params, drafter(name, PROMPT, params), fixed(depth, nodes))
    assert text.tokens == own_text(PROMPT, params, TOKENS)
    assert drafted_and_accepted(text)


@ways
async def test_a_batch_of_eight_gives_each_what_it_gets_alone(sampling: str, name: str) -> None:
    """Eight requests of different length, depth and shape at once; two of them without drafts."""
    params = [replace(SAMPLINGS[sampling], choice=number) for number in range(8)]
    prompts = [[3, *PROMPT[: number + 1]] for number in range(8)]
    depths = [(1, 1), (4, 4), (8, 8), (3, 9), (0, 0), (4, 4), (2, 6), (8, 8)]
    async with running_engine() as engine:
        drafts = [
            drafter(name, prompt, param) for prompt, param in zip(prompts, params, strict=True)
        ]
        requests = [
            (prompt, param, None if number == 5 else draft, fixed(*depth))
            for number, (prompt, param, draft, depth) in enumerate(
                zip(prompts, params, drafts, depths, strict=True)
            )
        ]
        texts = await together(engine, requests)
        assert engine.live_sessions == 0
    for text, prompt, param in zip(texts, prompts, params, strict=True):
        assert text.tokens == own_text(prompt, param, TOKENS)
    assert sum(text.report.accepted for text in texts) > 0


@ways
@pytest.mark.parametrize("lag", [0, 2])
async def test_hand_over_between_draft_and_free_run_at_every_token(
    sampling: str, name: str, lag: int
) -> None:
    """A free run begins, and ends by Halt, at every token that a text of this length has."""
    params = SAMPLINGS[sampling]
    expected = own_text(PROMPT, params, TOKENS)
    for token in range(1, TOKENS):
        for free in (
            lambda left, t=token: left <= t,
            lambda left, t=token: left > t,
            lambda left, t=token: left == t,
        ):
            draft = drafter(name, PROMPT, params)
            text = await alone(params, draft, Handover(fixed(4), free), lag=lag)
            assert text.tokens == expected, token


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("period", [2, 3, 5])
async def test_hand_overs_in_turn_through_the_engine(sampling: str, period: int) -> None:
    """Halt races the engine's steps: the run is wherever it is when the orchestrator ends it."""
    params = SAMPLINGS[sampling]
    controllers = [
        Handover(fixed(3), lambda left, shift=shift: (left + shift) % period == 0)
        for shift in range(8)
    ]
    async with running_engine() as engine:
        texts = await together(
            engine,
            [(PROMPT, params, drafter("noisy copy", PROMPT, params), one) for one in controllers],
        )
    assert {text.tokens for text in texts} == {own_text(PROMPT, params, TOKENS)}
    assert {Kind.PLAIN, Kind.ACCEPTED} <= {kind for text in texts for kind in text.kinds[1:]}


@ways
@pytest.mark.parametrize("reopens_after", [None, 1, 5])
async def test_a_drafter_may_die_at_any_proposal(
    sampling: str, name: str, reopens_after: int | None
) -> None:
    params = SAMPLINGS[sampling]
    expected = own_text(PROMPT, params, TOKENS)
    for number in range(4):
        draft = drafter(name, PROMPT, params, Faults(dies_at=number, reopens_after=reopens_after))
        text = await alone(params, draft, fixed(2))
        assert text.tokens == expected
        assert draft.reopened == (0 if reopens_after is None else 1)
        assert draft.asked >= number + 1 if reopens_after is None else draft.asked > number + 1


@ways
@pytest.mark.parametrize(
    "late",
    [{0}, {1, 2}, {0, 2, 4}, set(range(100))],
    ids=["first", "second and third", "every other", "all"],
)
async def test_late_proposals_change_nothing(sampling: str, name: str, late: set[int]) -> None:
    params = SAMPLINGS[sampling]
    draft = drafter(name, PROMPT, params, Faults(late=frozenset(late)))
    text = await alone(params, draft, fixed(3), lag=1)
    assert text.tokens == own_text(PROMPT, params, TOKENS)
    assert draft.late == len({number for number in late if number < draft.asked}) > 0
    assert (text.report.drafted > 0) == (len(late) < 100)


async def test_another_seed_choice_or_prompt_gives_another_text() -> None:
    """The comparisons above have power: texts of this length do differ."""
    others = [
        (PROMPT, replace(SEEDED, seed=8)),
        (PROMPT, replace(SEEDED, choice=2)),
        ([3, *PROMPT], SEEDED),
        (PROMPT, replace(SEEDED, temperature=1.4)),
    ]
    texts = {own_text(PROMPT, SEEDED, TOKENS), *(own_text(p, s, TOKENS) for p, s in others)}
    assert len(texts) == 5
    assert len(own_text(PROMPT, SamplingParams(seed=0), TOKENS)) == TOKENS
