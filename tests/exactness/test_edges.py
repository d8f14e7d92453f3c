"""The ends of a text, of a context and of a free run, through the loop."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from same_text import (
    DRAFTS,
    GREEDY,
    PROMPT,
    SEEDED,
    TARGET,
    TOKENS,
    UNSEEDED,
    alone,
    assert_ends_once,
    drafter,
    own_text,
    stopped,
)

from outrider.core.acceptance import Kind
from outrider.core.round import Budget, Proposal, SamplingParams
from outrider.core.sampling import probabilities
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter, DraftSession
from tests.local.drafters import LocalDraft, draft_model
from tests.local.generation import fixed, generate
from tests.local.memo_lm import MemoLM, memo_lm
from tests.local.verifiers import LocalTarget

BELOW_ONE = float(np.nextafter(1.0, 0.0))
samplings = pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])


@samplings
@pytest.mark.parametrize("depth", [0, 1, 4, 8])
@pytest.mark.parametrize("stop", range(8))
async def test_text_ends_behind_the_first_stop_id(
    sampling: SamplingParams, depth: int, stop: int
) -> None:
    expected = stopped(own_text(PROMPT, sampling, TOKENS), stop)
    for name in DRAFTS:
        text = await alone(
            sampling, drafter(name, PROMPT, sampling), fixed(depth), stop_ids=(stop,)
        )
        assert text.tokens == expected
        assert_ends_once(text)


@samplings
async def test_eos_inside_an_accepted_path_cuts_the_rest_of_the_path_off(
    sampling: SamplingParams,
) -> None:
    own = own_text(PROMPT, sampling, TOKENS)
    cut = 0
    for stop in set(own[1:8]) - {own[0]}:
        place = own.index(stop)
        text = await alone(
            sampling, drafter("own weights", PROMPT, sampling), fixed(8), stop_ids=(stop,)
        )
        assert text.tokens == own[: place + 1]
        if place in range(
            1, 9
        ):  # in the first round's path, with accepted nodes and the bonus behind it
            assert text.kinds == (Kind.PLAIN, *[Kind.ACCEPTED] * place)
            assert (text.report.accepted, text.report.emitted) == (place, place)
            assert text.report.drafted_per_position == [1] * 8
            cut += 1
    assert cut >= 2


@samplings
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("depth", [0, 1, 4, 8])
async def test_text_has_max_tokens_exactly(sampling: SamplingParams, name: str, depth: int) -> None:
    own = own_text(PROMPT, sampling, TOKENS)
    for tokens in range(1, 14):
        text = await alone(sampling, drafter(name, PROMPT, sampling), fixed(depth), tokens=tokens)
        assert text.tokens == own[:tokens]
        assert_ends_once(text)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, UNSEEDED], ids=["greedy", "seeded", "drawn"])
async def test_one_token_asks_no_drafter(sampling: SamplingParams) -> None:
    draft = drafter("own weights", PROMPT, sampling)
    text = await alone(sampling, draft, fixed(8), tokens=1)
    assert (len(text.tokens), text.kinds, draft.asked, text.report.passes) == (
        1,
        (Kind.PLAIN,),
        0,
        0,
    )


async def test_two_tokens_ask_no_drafter_either() -> None:
    """One token remains behind the prefill, and a pass emits one anyway."""
    draft = drafter("own weights", PROMPT, GREEDY)
    text = await alone(GREEDY, draft, fixed(8), tokens=2)
    assert (text.kinds, draft.asked) == ((Kind.PLAIN, Kind.PLAIN), 0)


async def test_stop_id_in_the_prefills_token_ends_the_text() -> None:
    own = own_text(PROMPT, GREEDY, 1)
    text = await alone(GREEDY, drafter("own weights", PROMPT, GREEDY), fixed(4), stop_ids=own)
    assert text.tokens == own
    assert_ends_once(text)


class Silent(Drafter):
    """Proposes nothing."""

    method = "silent"

    def propose(self, batch: list[tuple[DraftSession, Budget]]) -> list[Proposal]:  # type: ignore[override]
        return [
            Proposal(TokenTree.root_only(session.tokens[-1]), self.method) for session, _ in batch
        ]


@samplings
async def test_empty_proposals_are_passes_but_no_rounds(sampling: SamplingParams) -> None:
    text = await alone(sampling, LocalDraft(Silent()).open(PROMPT, sampling), fixed(4))
    assert text.tokens == own_text(PROMPT, sampling, TOKENS)
    assert set(text.kinds) == {Kind.PLAIN}
    assert (text.report.rounds, text.report.drafted, text.report.passes) == (0, 0, TOKENS - 1)


def same_model(context_length: int) -> MemoLM:
    model = memo_lm(seed=0, context_length=context_length)
    assert np.array_equal(model.of([1, 2]), TARGET.of([1, 2]))
    return model


@samplings
@pytest.mark.parametrize("depth", [0, 3, 8])
@pytest.mark.parametrize("shorter", [0, 5, 15])
async def test_text_reaches_the_end_of_the_context(
    sampling: SamplingParams, depth: int, shorter: int
) -> None:
    """Prompt and output fill the target's context; a draft model with less falls silent."""
    end = len(PROMPT) + TOKENS
    target, draft = LocalTarget(same_model(end)), draft_model(same_model(end - shorter))
    session = draft.open(PROMPT, sampling)
    text = await generate(
        PROMPT, target.open(PROMPT, sampling, TOKENS), session, fixed(depth), TOKENS
    )
    assert text.tokens == own_text(PROMPT, sampling, TOKENS)
    assert (text.report.accepted > 0) == (depth > 0)


@pytest.mark.parametrize("uniform", [0.0, BELOW_ONE])
@pytest.mark.parametrize("nodes", [4, 12])
async def test_no_uniform_emits_a_token_without_mass(uniform: float, nodes: int) -> None:
    """p keeps two tokens of eight, and the draft's two are mostly others."""
    sampling = replace(UNSEEDED, top_k=2)
    draft = drafter("stranger", PROMPT, sampling)
    target = LocalTarget(TARGET)
    text = await generate(
        PROMPT,
        target.open(PROMPT, sampling, TOKENS),
        draft,
        fixed(4, nodes),
        TOKENS,
        uniform=itertools.repeat(uniform).__next__,
    )
    whole = [*PROMPT, *text.tokens]
    for place in range(len(PROMPT), len(whole)):
        assert probabilities(TARGET.of(whole[:place]).numpy(), sampling)[whole[place]] > 0
    assert text.report.drafted > text.report.accepted
    assert Kind.RECOVERED in text.kinds
