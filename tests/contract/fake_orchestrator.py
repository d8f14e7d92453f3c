"""An orchestrator without a model: it answers from a script, and faults can be put in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import orchestrator_pb2_grpc, types_pb2

Fault = Callable[[Any], Any]


def summary() -> pb.Summary:
    """Totals with a different number in every field."""
    return pb.Summary(
        finish_reason=pb.FINISH_REASON_LENGTH,
        usage=pb.Usage(prompt_tokens=3, completion_tokens=6),
        speculation=pb.SpeculationReport(
            method="ngram",
            rounds=2,
            drafted=8,
            accepted=3,
            emitted=5,
            passes=3,
            late_proposals=1,
            tree_exact=True,
            drafted_per_position=[2, 2],
            accepted_per_position=[2, 1],
        ),
        timings=pb.Timings(total_us=900, first_token_us=100, draft_us=7, round_bytes=55),
        request_id="r-1",
        model="fake",
        exact=True,
        numerics=types_pb2.Numerics(weights_hash="w", dtype="float32", fingerprint="f"),
    )


def replies() -> list[pb.GenerateReply]:
    """Six tokens in three replies."""
    return [
        pb.GenerateReply(token_ids=[1], kinds=[pb.TOKEN_KIND_PLAIN], text="a"),
        pb.GenerateReply(
            token_ids=[2, 3, 4],
            kinds=[pb.TOKEN_KIND_ACCEPTED, pb.TOKEN_KIND_ACCEPTED, pb.TOKEN_KIND_BONUS],
            text="bcd",
        ),
        pb.GenerateReply(
            token_ids=[5, 6],
            kinds=[pb.TOKEN_KIND_ACCEPTED, pb.TOKEN_KIND_RECOVERED],
            text="ef",
            summary=summary(),
        ),
    ]


@dataclass
class FakeOrchestrator(orchestrator_pb2_grpc.OrchestratorServicer):
    """Sends `replies`; the fault of call i, where there is one, runs before reply `fault_at`."""

    name: str = "outrider.v1.Orchestrator"
    replies: list[pb.GenerateReply] = field(default_factory=replies)
    faults: list[Callable[[grpc.aio.ServicerContext], Any]] = field(default_factory=list)
    fault_at: int = 0
    endless: bool = False
    requests: list[pb.GenerateRequest] = field(default_factory=list)
    measured: list[pb.Measured] = field(default_factory=list)
    cancelled: int = 0
    live: int = 0
    stopped: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def register(self, server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(self, server)

    async def start(self) -> None:
        self.started.set()

    async def stop(self) -> None:
        self.stopped = True

    async def Generate(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateReply]:
        self.requests.append(request)
        self.live += 1
        try:
            for index, reply in enumerate(self.replies):
                if index == self.fault_at:
                    await self._fail(context)
                yield reply
                while self.endless:
                    await asyncio.sleep(0.01)
                    yield pb.GenerateReply(token_ids=[9], kinds=[pb.TOKEN_KIND_PLAIN], text="x")
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.live -= 1

    async def GetInfo(
        self, request: pb.OrchestratorInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.OrchestratorInfo:
        await self._fail(context)
        return pb.OrchestratorInfo(
            model=types_pb2.ModelInfo(
                name="fake",
                vocab_size=8,
                context_length=64,
                numerics=types_pb2.Numerics(dtype="float32"),
            ),
            methods=["draft_model", "ngram"],
            recommended_depths=[4, 6],
            max_depth=16,
            max_nodes=64,
            version="1",
            measured=self.measured,
        )

    async def _fail(self, context: grpc.aio.ServicerContext) -> None:
        if self.faults:
            await self.faults.pop(0)(context)


def abort(
    code: grpc.StatusCode, details: str = "injected", metadata: tuple[Any, ...] = ()
) -> Fault:
    """A fault: the call ends with this status."""

    async def fail(context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, details, metadata)

    return fail


def stumble(error: BaseException) -> Fault:
    """A fault: the handler raises."""

    async def fail(_: grpc.aio.ServicerContext) -> None:
        raise error

    return fail


def hang() -> Fault:
    """A fault: nothing comes any more."""

    async def fail(_: grpc.aio.ServicerContext) -> None:
        await asyncio.sleep(3600)

    return fail


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Returns once the condition holds, and fails after the time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - any condition at all, not only events
                await asyncio.sleep(0.01)
    assert condition(), f"not so within {within_s} s"
