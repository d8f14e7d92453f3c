"""A real target server with a tiny model that tests slow down, stop and break."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest
import torch

from outrider.models.causal_lm import CausalLM, Hidden, Segment
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.v1 import target_pb2, target_pb2_grpc, types_pb2
from target_service.engine import Engine
from target_service.service import TargetService
from target_service.settings import TargetSettings
from tests.tiny import tiny_llama

VOCAB = 64
CONTEXT = 512
TIMEOUT = 20.0


class SteeredModel:
    """A model whose forward waits while its gate is shut, takes `delay_s` longer, and fails on
    `poison`."""

    def __init__(self, model: CausalLM, delay_s: float = 0.0, poison: int | None = None) -> None:
        self.model = model
        self.delay_s = delay_s
        self.poison = poison
        self.gate = threading.Event()
        self.gate.set()
        self.steps: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def forward(self, segments: Sequence[Segment], taps: Sequence[int] = ()) -> Hidden:
        assert self.gate.wait(TIMEOUT)
        time.sleep(self.delay_s)
        if any(self.poison in segment.tokens for segment in segments):
            raise ArithmeticError("the secret of the poison")
        self.steps.append(len(segments))
        return self.model.forward(segments, taps)


@functools.cache
def tiny_target() -> CausalLM:
    """One for all tests: nothing in it changes."""
    torch.set_num_threads(1)  # the engines of several services share this process
    return tiny_llama(VOCAB)


class Stream:
    """A Verify stream as a test uses it."""

    def __init__(self, call: grpc.aio.StreamStreamCall) -> None:
        self.call = call

    async def send(self, **message: Any) -> None:
        await self.call.write(target_pb2.TargetRequest(**message))

    async def read(self) -> target_pb2.TargetReply:
        reply = await self.call.read()
        assert reply is not grpc.aio.EOF, "the stream ended"
        return reply

    async def evidence(self) -> target_pb2.Evidence:
        reply = await self.read()
        assert reply.WhichOneof("message") == "evidence", reply
        return reply.evidence

    async def run(self) -> tuple[list[int], int]:
        """Tokens of a free run up to its end, acknowledged one by one, and the base_len of its
        end."""
        tokens: list[int] = []
        while (reply := await self.read()).WhichOneof("message") == "free_run_tokens":
            tokens += reply.free_run_tokens.tokens
            await self.send(
                acknowledge=target_pb2.Acknowledge(base_len=reply.free_run_tokens.base_len)
            )
        return tokens, reply.free_run_end.base_len

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ends, read to its end."""
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await self._to_its_end()
        return error.value.code(), error.value.details() or ""

    async def _to_its_end(self) -> None:
        while (await self.call.read()) is not grpc.aio.EOF:
            pass


@dataclass
class Server:
    """What a test gets."""

    stub: target_pb2_grpc.TargetStub
    engine: Engine
    model: SteeredModel
    address: str

    async def info(self) -> target_pb2.TargetInfo:
        return await self.stub.GetInfo(target_pb2.TargetInfoRequest(), timeout=TIMEOUT)

    def stream(self) -> Stream:
        return Stream(self.stub.Verify(timeout=TIMEOUT))

    async def opened(self, prompt: Sequence[int] = (1, 2, 3), **fields: Any) -> tuple[Stream, int]:
        """A stream behind its prefill, and the token that the prefill drew."""
        stream = self.stream()
        await stream.send(open=open_message(prompt, **fields))
        while (reply := await stream.read()).WhichOneof("message") == "features":
            pass
        return stream, reply.evidence.samples[0]

    async def live(self, expected: int, within_s: float = 1.0) -> bool:
        """Whether the number of live sessions becomes `expected` in time."""
        async with asyncio.timeout(within_s):
            while (await self.info()).live_sessions != expected:  # noqa: ASYNC110 - only an RPC tells
                await asyncio.sleep(0.01)
        return True


@asynccontextmanager
async def serving(model: SteeredModel | None = None, **settings: Any) -> AsyncIterator[Server]:
    model = model or SteeredModel(tiny_target())
    settings = {"listen": "127.0.0.1:0", "grace_s": 0.1, **settings}
    checked = TargetSettings(**settings)
    engine = Engine(model, checked.engine_limits)  # type: ignore[arg-type]
    async with (
        running(checked, TargetService(engine, checked)) as address,
        connect(address, max_message_mib=64) as channel,
    ):
        model.steps.clear()
        yield Server(target_pb2_grpc.TargetStub(channel), engine, model, address)  # type: ignore[no-untyped-call]


def open_message(
    prompt: Sequence[int] = (1, 2, 3), max_tokens: int = 64, features: Any = None, **sampling: Any
) -> target_pb2.TargetOpen:
    """Greedy unless the sampling says otherwise."""
    return target_pb2.TargetOpen(
        request_id="r",
        prompt_ids=prompt,
        sampling=types_pb2.SamplingParams(**{"temperature": 0.0, **sampling}),
        max_tokens=max_tokens,
        features=features,
    )


def commit(emitted: int, accepted: Sequence[int] = ()) -> types_pb2.Commit:
    return types_pb2.Commit(accepted=accepted, emitted=emitted)


def verify(
    round_: int,
    base_len: int,
    root: int,
    decision: types_pb2.Commit | None = None,
    tokens: Sequence[int] = (),
    parents: Sequence[int] | None = None,
    supports: Sequence[types_pb2.Support] = (),
    tree_exact: bool | None = None,
) -> target_pb2.VerifyRequest:
    """A chain where no parents are given."""
    return target_pb2.VerifyRequest(
        round=round_,
        base_len=base_len,
        commit=decision,
        root=root,
        tree=types_pb2.Tree(
            tokens=tokens, parents=range(len(tokens)) if parents is None else parents
        ),
        supports=supports,
        tree_exact=tree_exact,
    )


def free_run(
    round_: int,
    base_len: int,
    root: int,
    decision: types_pb2.Commit | None = None,
    max_tokens: int = 8,
    stop_ids: Sequence[int] = (),
) -> target_pb2.FreeRun:
    return target_pb2.FreeRun(
        round=round_,
        base_len=base_len,
        commit=decision,
        root=root,
        max_tokens=max_tokens,
        stop_ids=stop_ids,
    )


def greedy(prompt: Sequence[int], tokens: int) -> list[int]:
    """The model's own text, one row at a time."""
    model = tiny_target()
    cache, text = model.new_cache(), list(prompt)
    pending = text[:]
    for _ in range(tokens):
        hidden = model.forward([Segment.chain(cache, pending)])
        pending = [int(model.logits(hidden.states[-1:]).argmax())]
        text += pending
    return text[len(prompt) :]
