"""What the door refuses, with which status and words; a request that was refused leaves nothing
behind."""

import copy
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from stack import DraftReplica, Stack, deployment, standard_drafters
from stack_models import CONTEXT, VOCAB, encode, model, tokenizer
from target_server import SteeredModel
from transformers import PreTrainedTokenizerFast

from orchestrator.service import OrchestratorService
from orchestrator.settings import OrchestratorSettings
from outrider.exceptions import InvalidRequest, ResourceExhausted
from outrider.models.causal_lm import CausalLM
from outrider.models.tokenizer import tokenizer_fingerprint
from outrider.serving.errors import FailedPrecondition, Unavailable
from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import types_pb2
from tests.tiny import tiny_model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[Stack]:
    async with deployment(max_message_mib=1, max_depth=8, max_nodes=12) as it:
        yield it


def message(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"prompt": b"Once", "max_tokens": 4, **fields})


def sampling(**fields: Any) -> dict[str, Any]:
    return {"sampling": types_pb2.SamplingParams(**fields)}


def speculative(**fields: Any) -> dict[str, Any]:
    return {"speculative": pb.Speculative(**fields)}


def chat(role: str = "user", content: bytes = b"Hi") -> dict[str, Any]:
    return {"prompt": None, "chat": pb.Chat(messages=[pb.ChatMessage(role=role, content=content)])}


def ids(*tokens: int) -> dict[str, Any]:
    return {"prompt": None, "prompt_token_ids": pb.TokenIds(ids=tokens)}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"prompt": None}, "prompt: missing; give prompt, prompt_token_ids or chat"),
    "empty text": ({"prompt": b""}, "prompt: 0 tokens, limit at least 1"),
    "no ids": (ids(), "prompt: 0 tokens, limit at least 1"),
    "prompt over the context": (
        {"prompt": b"x" * CONTEXT},
        f"prompt: {CONTEXT} tokens, limit {CONTEXT - 1}",
    ),
    "prompt and output over it": (
        {"prompt": b"x" * 500, "max_tokens": 13},
        "max_tokens: 13, limit 1 to 12",
    ),
    "zero max_tokens": ({"max_tokens": 0}, f"max_tokens: 0, limit 1 to {CONTEXT - 4}"),
    "negative max_tokens": ({"max_tokens": -3}, f"max_tokens: -3, limit 1 to {CONTEXT - 4}"),
    "temperature below 0": (
        sampling(temperature=-0.1),
        "sampling.temperature: -0.1, limit at least 0",
    ),
    "NaN temperature": (
        sampling(temperature=math.nan),
        "sampling.temperature: nan, limit at least 0",
    ),
    "infinite temperature": (
        sampling(temperature=math.inf),
        "sampling.temperature: inf, limit at least 0",
    ),
    "top_p of 0": (sampling(top_p=0.0), "sampling.top_p: 0.0, limit above 0, at most 1"),
    "negative min_p": (sampling(min_p=-0.5), "sampling.min_p: -0.5, limit 0 to 1"),
    "unknown method": (
        speculative(method="magic"),
        "speculative.method: 'magic' is not served; limit plain, same, noisy, ngram",
    ),
    "K over the maximum": (speculative(n_max=9), "speculative.n_max: 9, limit 0 to 8"),
    "negative K": (speculative(n_max=-1), "speculative.n_max: -1, limit 0 to 8"),
    "n_min over n_max": (speculative(n_max=2, n_min=3), "speculative.n_min: 3, limit 0 to 2"),
    "negative n_min": (speculative(n_min=-1), "speculative.n_min: -1, limit 0 to 4"),
    "nodes over the maximum": (
        speculative(nodes_max=13),
        "speculative.nodes_max: 13, limit 4 to 12",
    ),
    "fewer nodes than depth": (
        speculative(n_max=4, nodes_max=3),
        "speculative.nodes_max: 3, limit 4 to 12",
    ),
    "p_min over 1": (speculative(p_min=1.5), "speculative.p_min: 1.5, limit 0 to 1"),
    "NaN p_min": (speculative(p_min=math.nan), "speculative.p_min: nan, limit 0 to 1"),
    "bad though it is off": (
        speculative(enabled=False, n_max=99),
        "speculative.n_max: 99, limit 0 to 8",
    ),
    "invalid UTF-8": ({"prompt": b"ab\xff"}, "prompt: invalid UTF-8 at byte 2 of 3"),
    "half a character": ({"prompt": "é".encode()[:1]}, "prompt: invalid UTF-8 at byte 0 of 1"),
    "invalid UTF-8 in a chat": (
        chat(content=b"\xc3"),
        "chat.messages[0].content: invalid UTF-8 at byte 0 of 1",
    ),
    "token out of range": (
        ids(1, VOCAB),
        f"prompt_token_ids[1]: token {VOCAB}, limit 0 to {VOCAB - 1}",
    ),
    "too many stops": ({"stop": ["x"] * 17}, "stop: 17, limit 0 to 16"),
    "empty stop": ({"stop": ["x", ""]}, "stop[1] characters: 0, limit 1 to 256"),
    "stop too long": ({"stop": ["x" * 257]}, "stop[0] characters: 257, limit 1 to 256"),
    "bad role": (
        chat(role="wizard"),
        "chat.messages[0].role: 'wizard', limit system, user, assistant",
    ),
    "no messages": (
        {"prompt": None, "chat": pb.Chat()},
        "chat.messages: 0 messages, limit at least 1",
    ),
    "class too long": ({"class": "x" * 65}, "limit 64 printable characters"),
    "request id with a line end": (
        {"request_id": "a\nb"},
        "request_id: 'a\\nb', limit 64 printable characters",
    ),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("fields", "expected"), BAD.values(), ids=BAD.keys())
async def test_bad_request_is_an_invalid_argument_that_names_field_value_and_limit(
    stack: Stack, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stack.stub.Generate(message(**fields), timeout=10).read()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert expected in (error.value.details() or "")
    assert stack.engine.live_sessions == 0
    assert (await stack.client.info()).live_requests == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_sdk_raises_invalid_request_with_the_servers_words(stack: Stack) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens: 0, limit 1 to 508"):
        await stack.client.generate("Once", max_tokens=0)


@pytest.mark.asyncio(loop_scope="module")
async def test_message_over_the_size_limit_is_refused_by_name_of_the_limit(stack: Stack) -> None:
    for size, code in (
        (1 << 20, grpc.StatusCode.INVALID_ARGUMENT),
        ((1 << 20) + 1, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        request = message(prompt=b"x" * size)
        request.prompt = b"x" * (2 * size - request.ByteSize())
        assert request.ByteSize() == size
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stack.stub.Generate(request, timeout=10).read()
        assert error.value.code() is code
    assert str(1 << 20) in (error.value.details() or "")


@pytest.mark.asyncio(loop_scope="module")
async def test_prompt_and_output_may_fill_the_context_to_the_last_token(stack: Stack) -> None:
    result = await stack.generate("x" * (CONTEXT - 6), tokens=6, ignore_eos=True)
    assert (result.usage.total_tokens, result.finish_reason) == (CONTEXT, "length")


@pytest.mark.asyncio(loop_scope="module")
async def test_defaults_are_the_first_method_at_its_recommended_depth(stack: Stack) -> None:
    result = await stack.client.generate("Once", max_tokens=32, temperature=0.0, ignore_eos=True)
    assert result.speculation.method == "same"
    assert len(result.speculation.drafted_per_position) == 4


async def test_chat_without_a_template_is_refused() -> None:
    bare = copy.deepcopy(tokenizer())
    bare.chat_template = None
    async with deployment(made_tokenizer=bare, replicas=0) as stack:
        with pytest.raises(
            InvalidRequest, match="chat: the model has no chat template; give prompt instead"
        ):
            await stack.client.chat([{"role": "user", "content": "Hi"}])


async def test_template_that_refuses_the_messages_is_an_invalid_argument() -> None:
    strict = copy.deepcopy(tokenizer())
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    async with deployment(made_tokenizer=strict, replicas=0) as stack:
        with pytest.raises(
            InvalidRequest, match=r"chat\.messages: refused by the .* roles must alternate"
        ):
            await stack.client.chat([{"role": "user", "content": "Hi"}])


async def test_chat_is_the_template_applied() -> None:
    async with deployment(replicas=0) as stack:
        messages = [{"role": "user", "content": "Hi"}]
        result = await stack.client.chat(messages, max_tokens=8, temperature=0.0)
        rendered = tokenizer().apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        again = await stack.client.generate(
            prompt_token_ids=encode(rendered), max_tokens=8, temperature=0.0
        )
        assert result.token_ids == again.token_ids
        assert result.usage.prompt_tokens == len(encode(rendered)) == 20


async def test_more_requests_than_allowed_are_refused_with_a_time_to_come_back() -> None:
    async with deployment(SteeredModel(model(), delay_s=0.02), replicas=0, max_requests=1) as stack:
        first = stack.client.stream("Once", max_tokens=200, temperature=0.0, ignore_eos=True)
        await anext(first)
        with pytest.raises(ResourceExhausted, match="requests: 1 in progress, limit 1") as error:
            await stack.generate()
        assert error.value.retry_after_s == 1.0
        await first.aclose()
        assert await stack.freed()
        assert (await stack.generate(tokens=2)).token_ids


async def test_full_target_is_resource_exhausted_and_not_a_lost_one() -> None:
    slow = SteeredModel(model(), delay_s=0.02)
    async with deployment(slow, replicas=0, target_settings={"max_sessions": 1}) as stack:
        first = stack.client.stream("Once", max_tokens=200, temperature=0.0, ignore_eos=True)
        await anext(first)
        with pytest.raises(ResourceExhausted, match="sessions: 1 open, limit 1"):
            await stack.generate()
        await first.aclose()


@pytest.mark.parametrize("side", ["draft", "target"])
async def test_peer_with_another_tokenizer_is_refused_at_the_start_naming_both(side: str) -> None:
    async with deployment() as stack:
        other = DraftReplica(standard_drafters, fingerprint="beef")
        await other.start()
        mine = PreTrainedTokenizerFast(tokenizer_object=tokenizer().backend_tokenizer)
        settings = {"target": stack.service._settings.target, "draft": [other.address]}
        service = OrchestratorService(
            tokenizer() if side == "draft" else mine,
            OrchestratorSettings(**settings, tokenizer="here"),
        )
        with pytest.raises(FailedPrecondition) as error:
            await service.start()
        await service.stop()
        await other.kill()
        assert "has fingerprint" in str(error.value)
        assert "the orchestrator's here has" in str(error.value)
        if side == "draft":
            assert f"draft {other.address} has fingerprint beef" in str(error.value)
            assert "target" not in str(error.value)
        else:
            assert f"target {settings['target']} has fingerprint" in str(error.value)


async def test_orchestrator_without_a_target_gives_up_at_its_deadline() -> None:
    settings = OrchestratorSettings(target="127.0.0.1:9", peers_deadline_s=0.3)
    service = OrchestratorService(tokenizer(), settings)
    with pytest.raises(Unavailable, match=r"target 127\.0\.0\.1:9: no answer in 0\.3 s"):
        await service.start()
    await service.stop()


async def test_a_text_that_the_target_can_never_hold_is_refused_as_bad_input() -> None:
    small = CausalLM.from_model(
        tiny_model(vocab=VOCAB),
        name="tiny-llama",
        tokenizer_fingerprint=tokenizer_fingerprint(tokenizer()),
        kv_bytes=1,  # two blocks in any case
    )
    async with deployment(SteeredModel(small), target_settings={"max_nodes": 8}) as stack:
        limit = "prompt_ids \\+ max_tokens: 160, limit 120 tokens of KV memory"
        with pytest.raises(InvalidRequest, match=limit):
            await stack.generate("x" * 60, tokens=100)
        assert (await stack.generate("x" * 60, tokens=20)).usage.completion_tokens == 20
        assert await stack.freed()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"target": "nohost"}, "address 'nohost' is not HOST:PORT"),
        ({"draft": ["127.0.0.1:1", "nohost"]}, "address 'nohost' is not HOST:PORT"),
        ({"max_depth": 100, "max_nodes": 10}, "max_nodes: 10, limit max_depth 100"),
    ],
)
def test_settings_that_no_request_could_use_are_refused_at_the_start(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        OrchestratorSettings(**settings)
