"""What the client reads: text and tokens, where they end, and what is said about each of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from stack import Stack, deployment, draft_model, fixed
from stack_models import CycleModel, encode, greedy, tokenizer

from draft_service.drafters.draft_model import DraftModelDrafter
from outrider.drafting.base import Drafter
from outrider.results import Speculation

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROMPT = "z"  # the text behind it starts with a


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[Stack]:
    async with deployment() as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def letters() -> AsyncIterator[Stack]:
    async with deployment(CycleModel(LETTERS), lambda: cycle_drafters(LETTERS)) as it:
        yield it


def cycle_drafters(cycle: str) -> list[Drafter]:
    return [DraftModelDrafter(CycleModel(cycle))]  # type: ignore[arg-type]


async def streamed(
    stack: Stack, prompt: str, **options: Any
) -> tuple[list[str], list[list[int]], Any]:
    options = {"temperature": 0.0, "speculative": fixed(4), **options}
    chunks = [chunk async for chunk in stack.client.stream(prompt, **options)]
    assert [chunk.result for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    return (
        [chunk.text for chunk in chunks],
        [chunk.token_ids for chunk in chunks],
        chunks[-1].result,
    )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", ["same", "noisy", "ngram"])
@pytest.mark.parametrize("k", [0, 1, 4, 8])
async def test_greedy_text_is_the_targets_own(stack: Stack, method: str, k: int) -> None:
    result = await stack.generate("aaab aaab", 64, ignore_eos=True, speculative=fixed(k, method))
    assert tuple(result.token_ids) == greedy("aaab aaab", 64)
    assert result.exact
    assert result.speculation.passes < 64 if k and method != "ngram" else True
    assert (result.speculation.rounds > 0) == (k > 0)


@pytest.mark.asyncio(loop_scope="module")
async def test_noisy_tree_takes_second_siblings_and_changes_nothing(stack: Stack) -> None:
    for prompt in ("Once", "abc", "12+3="):
        tree = await stack.generate(
            prompt, 64, ignore_eos=True, speculative=fixed(4, "noisy", nodes_max=12)
        )
        chain = await stack.generate(
            prompt, 64, ignore_eos=True, speculative=fixed(4, "noisy", nodes_max=4)
        )
        assert tuple(tree.token_ids) == tuple(chain.token_ids) == greedy(prompt, 64)
        assert first_kept(tree.speculation) > first_kept(chain.speculation)


def first_kept(counts: Speculation) -> float:
    """How often a child of the root is kept; a chain offers one, a tree its siblings too."""
    return counts.accepted_per_position[0] / counts.rounds


@pytest.mark.asyncio(loop_scope="module")
async def test_seeded_text_does_not_depend_on_method_or_depth(stack: Stack) -> None:
    options: dict[str, Any] = {"temperature": 0.9, "seed": 11, "ignore_eos": True}
    plain = await stack.generate("Once", 48, **options, speculative={"n_max": 0})
    assert plain.speculation.rounds == 0
    for method in ("same", "noisy", "ngram"):
        result = await stack.generate("Once", 48, **options, speculative=fixed(4, method))
        assert result.token_ids == plain.token_ids
        assert method == "ngram" or result.speculation.accepted > 10
    other = await stack.generate(
        "Once", 48, **{**options, "seed": 12}, speculative=fixed(4, "same")
    )
    assert other.token_ids != plain.token_ids


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_chunks_add_up_to_the_text_of_the_tokens_even_where_bytes_make_no_characters(
    stack: Stack, temperature: float
) -> None:
    for prompt in ("Once", "日本", "x" * 90):
        texts, ids, result = await streamed(
            stack, prompt, temperature=temperature, max_tokens=80, ignore_eos=True
        )
        whole = [token for part in ids for token in part]
        assert result.token_ids == whole
        assert len(whole) == result.usage.completion_tokens == 80
        expected = tokenizer().decode(whole, skip_special_tokens=True)
        assert "".join(texts) == result.text == expected
        assert "\ufffd" in expected


@pytest.mark.parametrize("k", [0, 4])
async def test_characters_split_over_tokens_come_whole(k: int) -> None:
    cycle = "é日🙂"
    async with deployment(CycleModel(cycle), lambda: cycle_drafters(cycle)) as stack:
        texts, ids, result = await streamed(stack, cycle, max_tokens=18, speculative=fixed(k))
        assert result.text == "".join(texts) == cycle * 2
        assert not any("\ufffd" in text for text in texts)
        assert max(len(text) for text in texts) <= 3
        assert [token for part in ids for token in part] == encode(cycle * 2)
        texts, _, result = await streamed(stack, cycle, max_tokens=4, speculative=fixed(k))
        assert (
            result.text == "".join(texts) == "é\ufffd"
        )  # half of a character at the end is not lost


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("k", [0, 1, 4, 7])
@pytest.mark.parametrize(
    "stop", ["a", "b", "bc", "cd", "de", "fg", "efg", "ghijk", "abc", "klmnopq"]
)
async def test_text_ends_before_a_stop_string_and_tokens_with_the_one_that_completed_it(
    letters: Stack, stop: str, k: int
) -> None:
    texts, _, result = await streamed(
        letters, PROMPT, max_tokens=24, stop=stop, speculative=fixed(k)
    )
    before = LETTERS[: LETTERS.index(stop)]
    assert result.text == "".join(texts) == before
    assert result.token_ids == encode(before + stop)
    assert len(result.kinds) == len(result.token_ids)
    assert result.usage.completion_tokens == len(result.token_ids)
    assert result.finish_reason == "stop"


@pytest.mark.asyncio(loop_scope="module")
async def test_stop_string_in_the_middle_of_an_accepted_path(letters: Stack) -> None:
    halfway = []
    for start in range(12):
        stop = LETTERS[start : start + 2]
        result = await letters.generate(PROMPT, 24, stop=stop, speculative=fixed(7))
        assert result.text == LETTERS[:start]
        halfway.append(result.kinds[-1] == "accepted")
        report, behind = result.speculation, result.kinds[1:]  # the first one is the prefill's
        assert report.accepted == sum(report.accepted_per_position) == behind.count("accepted")
        assert report.accepted <= report.emitted == len(behind) - behind.count("plain")
    assert halfway.count(True) >= 5


@pytest.mark.asyncio(loop_scope="module")
async def test_text_that_may_begin_a_stop_string_is_held_back_and_comes_when_it_does_not(
    letters: Stack,
) -> None:
    texts, _, result = await streamed(
        letters, PROMPT, max_tokens=6, stop=["cdX", "fg"], speculative=fixed(0)
    )
    assert texts[:5] == ["a", "b", "", "", "cde"]
    assert result.text == "abcdef"
    assert result.finish_reason == "length"


@pytest.mark.asyncio(loop_scope="module")
async def test_first_of_several_stops_ends_the_text(letters: Stack) -> None:
    result = await letters.generate(PROMPT, 24, stop=["hij", "efgh", "gX"], speculative=fixed(7))
    assert (result.text, result.finish_reason) == ("abcd", "stop")


@pytest.mark.asyncio(loop_scope="module")
async def test_stop_string_that_ends_with_the_last_allowed_token_is_a_stop(letters: Stack) -> None:
    result = await letters.generate(PROMPT, 5, stop="de", speculative=fixed(4))
    assert (result.text, result.finish_reason, len(result.token_ids)) == ("abc", "stop", 5)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 6, 7, 17])
@pytest.mark.parametrize("k", [0, 4])
async def test_max_tokens_is_met_exactly(letters: Stack, tokens: int, k: int) -> None:
    result = await letters.generate(PROMPT, tokens, speculative=fixed(k))
    assert (result.text, result.finish_reason) == (LETTERS[:tokens], "length")
    assert result.usage.completion_tokens == tokens


@pytest.mark.parametrize("k", [0, 4, 8])
async def test_eos_inside_an_accepted_path_ends_the_tokens_with_it_and_the_text_before_it(
    k: int,
) -> None:
    for eos in "acdeh":
        target = CycleModel(LETTERS, eos_ids=encode(eos))
        async with deployment(target, lambda: cycle_drafters(LETTERS)) as stack:
            result = await stack.generate(PROMPT, 24, speculative=fixed(k))
            before = LETTERS[: LETTERS.index(eos)]
            assert (result.text, result.finish_reason) == (before, "stop")
            assert result.token_ids == encode(before + eos)
            assert len(result.kinds) == len(result.token_ids)
            further = await stack.generate(PROMPT, 24, speculative=fixed(k), ignore_eos=True)
            assert (further.text, further.finish_reason) == (LETTERS[:24], "length")
            last = await stack.generate(PROMPT, len(before) + 1, speculative=fixed(k))
            assert (last.text, last.finish_reason) == (before, "stop")


async def test_kinds_and_report_tell_the_same_story() -> None:
    async with deployment(drafters=lambda: [draft_model("noisy", 0.004)]) as stack:
        result = await stack.generate(
            "12+3=", 64, ignore_eos=True, speculative=fixed(4, nodes_max=4)
        )
        report = result.speculation
        assert (
            result.kinds.count("accepted") == report.accepted == sum(report.accepted_per_position)
        )
        assert report.drafted == sum(report.drafted_per_position)
        assert report.drafted_per_position[0] == report.rounds
        assert result.kinds.count("recovered") + result.kinds.count("bonus") == report.rounds
        assert report.emitted == report.accepted + report.rounds
        assert report.emitted + result.kinds.count("plain") == 64
        assert (
            report.passes == report.rounds + result.kinds.count("plain") - 1
        )  # the prefill is no pass
        assert 0.5 < report.acceptance_rate < 0.85
        assert {"accepted", "recovered", "bonus", "plain"} == set(result.kinds)
        timings = result.timings
        assert 0 < timings.first_token_us < timings.total_us
        assert timings.draft_us > 0
        assert timings.verify_us > 0
        assert timings.round_bytes > 0


@pytest.mark.asyncio(loop_scope="module")
async def test_trees_that_may_differ_in_bits_are_said_to(stack: Stack) -> None:
    tree = fixed(4, "noisy", nodes_max=8, tree_exact=False)
    result = await stack.generate("Once", 32, speculative=tree)
    assert not result.exact
    assert not result.speculation.tree_exact
    chain = fixed(4, "noisy", nodes_max=4, tree_exact=False)
    assert (await stack.generate("Once", 32, speculative=chain)).exact
