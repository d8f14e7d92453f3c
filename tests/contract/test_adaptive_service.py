"""The controller in a whole deployment: bounds, load, delays, and the text."""

import asyncio
from typing import Any

import pytest
from stack import Stack, SteeredDrafter, deployment, draft_model, fixed
from stack_models import greedy

SLOW = {"n_max": 6, "method": "slow"}


def slow_drafters() -> list[Any]:
    slow = SteeredDrafter(draft_model("same"), "slow")
    slow.delay_s = 0.05
    return [slow, draft_model("same"), draft_model("stranger", noise=0.5)]


async def several(stack: Stack, count: int, **options: Any) -> list[Any]:
    return [await stack.generate(f"{n} Once", 96, ignore_eos=True, **options) for n in range(count)]


async def test_text_is_the_targets_own_under_the_adaptive_controller() -> None:
    async with deployment() as stack:
        results = await asyncio.gather(
            *(
                stack.generate(
                    f"{n} Once", 96, ignore_eos=True, speculative={"n_max": 8, "method": method}
                )
                for n, method in enumerate(["same", "noisy", "ngram"] * 3)
            )
        )
    for n, result in enumerate(results):
        assert tuple(result.token_ids) == greedy(f"{n} Once", 96), n
    assert sum(result.speculation.rounds for result in results) > 0


async def test_a_seeded_text_is_the_same_with_k_fixed_adaptive_and_off() -> None:
    async with deployment() as stack:
        texts = {
            tuple(
                (
                    await stack.generate(
                        "Once", 96, temperature=0.9, seed=5, ignore_eos=True, speculative=wanted
                    )
                ).token_ids
            )
            for wanted in (
                fixed(0),
                fixed(4, "noisy"),
                {"n_max": 8, "method": "noisy"},
                {"n_max": 6},
            )
        }
    assert len(texts) == 1


async def test_a_drafter_that_costs_more_than_it_brings_is_left_alone() -> None:
    async with deployment(drafters=slow_drafters) as stack:
        results = await several(stack, 4, speculative=SLOW)
        forced = await several(stack, 1, speculative=fixed(6, "slow"))
    last = results[-1].speculation
    assert last.rounds < last.passes / 4
    assert forced[0].speculation.rounds > 0.8 * forced[0].speculation.passes


async def test_a_request_for_which_k_is_0_opens_no_draft_session() -> None:
    async with deployment(drafters=slow_drafters) as stack:
        await several(stack, 4, speculative=SLOW)
        before = (await stack.drafts[0].info()).sessions_total
        texts = [
            await stack.generate("Once", 12, ignore_eos=True, speculative=SLOW) for _ in range(3)
        ]
        assert (await stack.drafts[0].info()).sessions_total == before
        forced = await stack.generate("Once", 12, ignore_eos=True, speculative=fixed(2, "slow"))
        assert (await stack.drafts[0].info()).sessions_total == before + 1
    assert {tuple(text.token_ids) for text in [*texts, forced]} == {greedy("Once", 12)}


async def test_a_drafter_whose_drafts_are_not_kept_is_left_alone() -> None:
    async with deployment(drafters=slow_drafters) as stack:
        results = await several(stack, 4, speculative={"n_max": 6, "method": "stranger"})
    assert results[-1].speculation.drafted < results[-1].speculation.passes


async def test_n_min_holds_whatever_it_costs() -> None:
    async with deployment(drafters=slow_drafters) as stack:
        wanted = {"n_max": 6, "n_min": 2, "method": "slow"}
        result = (await several(stack, 1, speculative=wanted))[0]
    report = result.speculation
    assert report.rounds >= report.passes - 24  # the drafter's prefill is waited out at K=0
    assert report.drafted_per_position[1] >= report.rounds - 1


@pytest.mark.parametrize("setting", ["inject_draft_latency_ms", "inject_target_latency_ms"])
async def test_injected_latency_delays_every_message_both_ways(setting: str) -> None:
    async with deployment(**{setting: 15.0}) as stack:
        result = await stack.generate("Once", 24, ignore_eos=True, speculative=fixed(4, "same"))
    assert tuple(result.token_ids) == greedy("Once", 24)
    waited = result.timings.draft_wait_us if "draft" in setting else result.timings.verify_wait_us
    assert result.speculation.rounds > 0
    assert waited >= 30_000 * result.speculation.rounds


async def test_a_delayed_stream_that_ends_frees_its_sessions() -> None:
    async with deployment(inject_draft_latency_ms=5.0, inject_target_latency_ms=5.0) as stack:
        await stack.generate("Once", 24, ignore_eos=True, speculative=fixed(4, "same"))
        assert await stack.freed()


async def test_evidence_and_runs_tell_the_targets_load() -> None:
    async with deployment(target_settings={"max_batch": 2}) as stack:
        wanted = {"n_max": 4, "method": "noisy"}
        await asyncio.gather(
            *(
                stack.generate(f"{n} Once", 64, ignore_eos=True, speculative=wanted)
                for n in range(6)
            )
        )
        crowded = stack.service._knowledge.targets()[0]
        assert crowded.batch == 2
        assert crowded.load.batch in (1, 2)
        assert crowded.load.rows >= crowded.load.batch
        await stack.generate("Once", 64, ignore_eos=True, speculative=wanted)
        alone = crowded.load
    assert (alone.sessions, alone.batch, alone.left_out) == (1, 1, 0)
    assert crowded.verify.passes > 64
