"""A real draft server with drafters that tests steer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
import numpy as np
import pytest

from draft_service.drafters.setup import Vocabulary
from draft_service.engine import DraftEngine, Limits
from draft_service.service import DraftService
from outrider.core.round import Budget, Proposal, TruncatedDistribution
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.ngram import NgramDrafter
from outrider.models.numerics import Numerics
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import draft_pb2, draft_pb2_grpc, types_pb2

VOCAB = 100
VOCABULARY = Vocabulary("fake", "f00d", VOCAB, 64)
NUMERICS = Numerics("w", "float32", "none", "k")
POISON = 66
TIMEOUT = 10.0
Q = TruncatedDistribution(np.array([7, 40, 99]), np.array([0.1, 0.7, 0.2], dtype=np.float32))


class SteeredDrafter(Drafter):
    """Proposes the root's successors; fails on POISON; waits while its gate is shut."""

    method = "steered"
    model_name = "fake"
    numerics = NUMERICS

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[list[int]]] = []
        self.open_sessions = 0

    def open(self, prompt: Sequence[int], sampling: object) -> DraftSession:
        self.open_sessions += 1
        return super().open(prompt, sampling)  # type: ignore[arg-type]

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        assert self.gate.wait(TIMEOUT)
        self.batches.append([list(session.tokens) for session, _ in batch])
        return [self._one(session, budget) for session, budget in batch]

    def close(self, session: DraftSession) -> None:
        self.open_sessions -= 1

    def _one(self, session: DraftSession, budget: Budget) -> Proposal:
        root = session.tokens[-1]
        if root == POISON:
            raise ArithmeticError("poisoned")
        return Proposal(
            TokenTree.chain(root, [root + i + 1 for i in range(budget.depth)]), self.method
        )


class SlowPrefillDrafter(SteeredDrafter):
    """Works off prompts slice by slice, and records when."""

    method = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []
        self.slice_s = 0.0

    def prefill(self, session: DraftSession, rows: int | None = None) -> bool:
        if rows is None:  # the warm-up
            return True
        assert self.gate.wait(TIMEOUT)
        time.sleep(self.slice_s)
        session.state = (session.state or 0) + rows
        self.log.append(("prefill", session.tokens[0]))
        return bool(session.state >= len(session.tokens))

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        self.log += [("propose", session.tokens[0]) for session, _ in batch]
        return super().propose(batch)


class DrawnDrafter(SteeredDrafter):
    """Proposes one child and says that it was drawn from Q."""

    method = "drawn"

    def _one(self, session: DraftSession, budget: Budget) -> Proposal:
        return Proposal(TokenTree.chain(session.tokens[-1], [40]), self.method, {0: Q})


@dataclass
class Server:
    """What a test gets: the client's stub, and the drafters behind the server."""

    stub: draft_pb2_grpc.DraftStub
    engine: DraftEngine
    steered: SteeredDrafter
    slow: SlowPrefillDrafter

    async def info(self) -> draft_pb2.DraftInfo:
        return await self.stub.GetInfo(draft_pb2.DraftInfoRequest(), timeout=TIMEOUT)

    def stream(self) -> grpc.aio.StreamStreamCall:
        return self.stub.Propose(timeout=TIMEOUT)

    async def opened(
        self, prompt: Sequence[int] = (1, 2, 3), **fields: object
    ) -> grpc.aio.StreamStreamCall:
        call = self.stream()
        await call.write(open_message(prompt, **fields))
        assert (await call.read()).WhichOneof("message") == "ready"
        return call

    async def live(self, expected: int, within_s: float = 1.0) -> bool:
        """Whether the number of live sessions becomes `expected` in time."""
        async with asyncio.timeout(within_s):
            while (await self.info()).live_sessions != expected:  # noqa: ASYNC110 - only an RPC tells
                await asyncio.sleep(0.01)
        return True


@asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[Server]:
    steered, slow = SteeredDrafter(), SlowPrefillDrafter()
    drafters: list[Drafter] = [steered, slow, DrawnDrafter(), NgramDrafter()]
    engine = DraftEngine({drafter.method: drafter for drafter in drafters}, limits)
    settings = ServiceSettings(listen="127.0.0.1:0", grace_s=0.1)
    async with (
        running(settings, DraftService(engine, VOCABULARY)) as address,
        connect(address) as channel,
    ):
        steered.batches.clear()
        slow.batches.clear()
        slow.log.clear()
        yield Server(draft_pb2_grpc.DraftStub(channel), engine, steered, slow)  # type: ignore[no-untyped-call]


def open_message(
    prompt: Sequence[int] = (1, 2, 3), method: str = "steered", **sampling: object
) -> object:
    return draft_pb2.DraftMessage(
        open=draft_pb2.DraftOpen(
            request_id="r",
            method=method,
            prompt_ids=prompt,
            sampling=types_pb2.SamplingParams(**{"temperature": 0.0, **sampling}),  # type: ignore[arg-type]
            max_tokens=8,
        )
    )


def request(round_: int, base_len: int, new_tokens: Sequence[int] = (), **budget: float) -> object:
    fields = {"depth": 2, "nodes": 2, "m": 8, **budget}
    return draft_pb2.DraftMessage(
        request=draft_pb2.DraftRequest(
            round=round_,
            base_len=base_len,
            new_tokens=new_tokens,
            budget=draft_pb2.Budget(**fields),  # type: ignore[arg-type]
        )
    )


async def status(call: grpc.aio.StreamStreamCall) -> tuple[grpc.StatusCode, str]:
    """How the stream ends, read to its end."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await read_all(call)
    return error.value.code(), error.value.details() or ""


async def read_all(call: grpc.aio.StreamStreamCall) -> None:
    """Drops what a stream still brings."""
    while (await call.read()) is not grpc.aio.EOF:
        pass
