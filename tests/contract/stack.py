"""A whole deployment in one process over real sockets: target, draft replicas, orchestrator, SDK
client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from stack_models import CONTEXT, VOCAB, model, tokenizer
from target_server import SteeredModel
from transformers import PreTrainedTokenizerFast

from draft_service.drafters.draft_model import DraftModelDrafter
from draft_service.drafters.setup import Vocabulary
from draft_service.engine import DraftEngine
from draft_service.service import DraftService
from orchestrator.service import OrchestratorService
from orchestrator.settings import OrchestratorSettings
from outrider.client import AsyncClient
from outrider.core.round import Budget, Proposal
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.ngram import NgramDrafter
from outrider.models.tokenizer import tokenizer_fingerprint
from outrider.retries import Retry
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import draft_pb2, draft_pb2_grpc, orchestrator_pb2_grpc
from target_service.engine import Engine
from target_service.service import TargetService
from target_service.settings import TargetSettings

NOISE = 0.004  # of weights whose deviation is 0.3: about two of three drafted tokens are accepted
ANY_PORT = "127.0.0.1:0"


def draft_model(method: str, noise: float = 0.0, **shape: int) -> DraftModelDrafter:
    drafter = DraftModelDrafter(model(noise, **shape))
    drafter.method = method
    return drafter


class SteeredDrafter(Drafter):
    """Another drafter, slower by `delay_s`, whose proposals are spoilt."""

    def __init__(
        self,
        inner: Drafter,
        method: str,
        spoil: Callable[[Proposal, Budget], Proposal] = lambda proposal, budget: proposal,
    ) -> None:
        self.inner = inner
        self.method = method
        self.spoil = spoil
        self.delay_s = 0.0

    def __getattribute__(self, name: str) -> Any:
        if name in ("open", "prefill", "observe", "close"):
            return getattr(self.inner, name)
        return super().__getattribute__(name)

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        time.sleep(self.delay_s)
        budgets = [budget for _, budget in batch]
        proposals = self.inner.propose(batch)
        return [
            self.spoil(proposal, budget)
            for proposal, budget in zip(proposals, budgets, strict=True)
        ]


def standard_drafters() -> list[Drafter]:
    """The target itself, a copy with noise, and prompt lookup."""
    return [draft_model("same"), draft_model("noisy", NOISE), NgramDrafter()]


class DraftReplica:
    """A draft server that can be killed, and started again on its port."""

    def __init__(
        self, drafters: Callable[[], list[Drafter]], fingerprint: str | None = None
    ) -> None:
        self._make = drafters
        self._fingerprint = fingerprint or tokenizer_fingerprint(tokenizer())
        self._running: AsyncExitStack | None = None
        self.drafters: list[Drafter] = []
        self.address = ANY_PORT

    async def start(self) -> None:
        self.drafters = self._make()
        engine = DraftEngine({drafter.method: drafter for drafter in self.drafters})
        service = DraftService(engine, Vocabulary("tiny", self._fingerprint, VOCAB, CONTEXT))
        settings = ServiceSettings(listen=self.address, grace_s=0.0)
        self._running = AsyncExitStack()
        self.address = await self._running.enter_async_context(running(settings, service))

    @property
    def running(self) -> bool:
        return self._running is not None

    async def kill(self) -> None:
        if self._running is not None:
            running_, self._running = self._running, None
            await running_.aclose()

    async def info(self) -> draft_pb2.DraftInfo:
        async with connect(self.address) as channel:
            stub = draft_pb2_grpc.DraftStub(channel)  # type: ignore[no-untyped-call]
            return await stub.GetInfo(draft_pb2.DraftInfoRequest(), timeout=10)


@dataclass
class Stack:
    """What a test gets."""

    client: AsyncClient
    stub: orchestrator_pb2_grpc.OrchestratorStub
    service: OrchestratorService
    target: SteeredModel
    engine: Engine
    drafts: list[DraftReplica]
    kill_target: Callable[[], Any]

    async def generate(self, prompt: str = "Once", tokens: int = 48, **options: Any) -> Any:
        """Greedy, with the default drafter at K=4, unless the options say otherwise."""
        options = {"temperature": 0.0, "speculative": fixed(4), **options}
        return await self.client.generate(prompt, max_tokens=tokens, **options)

    async def freed(self, within_s: float = 1.0) -> bool:
        """Whether all sessions of target and drafts end in time."""
        async with asyncio.timeout(within_s):
            while await self._in_use():  # noqa: ASYNC110 - only an RPC tells
                await asyncio.sleep(0.01)
        return True

    async def _in_use(self) -> bool:
        drafts = [(await draft.info()).live_sessions for draft in self.drafts if draft.running]
        return self.engine.live_sessions > 0 or any(drafts)


def fixed(k: int, method: str | None = None, **fields: Any) -> dict[str, Any]:
    named = {} if method is None else {"method": method}
    return {"n_max": k, "n_min": k, **named, **fields}


@asynccontextmanager
async def deployment(
    target: SteeredModel | None = None,
    drafters: Callable[[], list[Drafter]] = standard_drafters,
    replicas: int = 1,
    target_settings: dict[str, Any] | None = None,
    made_tokenizer: PreTrainedTokenizerFast | None = None,
    **settings: Any,
) -> AsyncIterator[Stack]:
    # A little slower than it could be: otherwise a text may be over before its drafter is ready.
    target = target or SteeredModel(model(), delay_s=0.003)
    drafts = [DraftReplica(drafters) for _ in range(replicas)]
    async with AsyncExitStack() as stack:
        for draft in drafts:
            await draft.start()
            stack.push_async_callback(draft.kill)
        checked = TargetSettings(listen=ANY_PORT, grace_s=0.0, **(target_settings or {}))
        engine = Engine(target, checked.engine_limits)  # type: ignore[arg-type]
        only_target = await stack.enter_async_context(AsyncExitStack())
        target_address = await only_target.enter_async_context(
            running(checked, TargetService(engine, checked))
        )
        defaults = {
            "refresh_s": 0.1,
            "peers_deadline_s": 5.0,
            "grace_s": 0.1,
            "draft_deadline_s": 5.0,
        }
        service = OrchestratorService(
            made_tokenizer or tokenizer(),
            OrchestratorSettings(
                **{
                    "listen": ANY_PORT,
                    "target": target_address,
                    "draft": [d.address for d in drafts],
                    **defaults,
                    **settings,
                }
            ),
        )
        door = await stack.enter_async_context(running(service._settings, service))
        channel = await stack.enter_async_context(connect(door))
        client = await stack.enter_async_context(
            AsyncClient(door, retry=Retry(attempts=1), timeout=60)
        )
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)  # type: ignore[no-untyped-call]
        yield Stack(client, stub, service, target, engine, drafts, only_target.aclose)
