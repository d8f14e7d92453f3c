"""The Draft RPC: messages to calls and back.

What does not fit is refused here, before the engine sees it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import grpc
import grpc.aio

from draft_service.drafters.setup import Vocabulary
from draft_service.engine import DraftEngine, EngineFull
from draft_service.session import EngineStopped, Prefilled, Reply, Request, Session
from outrider.drafting.base import Drafter
from outrider.serving.errors import (
    FailedPrecondition,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from outrider.serving.wire import (
    check_range,
    check_tokens,
    features_from_proto,
    numerics_to_proto,
    sampling_from_proto,
)
from outrider.serving.wire_rounds import budget_from_proto, proposal_to_proto
from outrider.v1 import draft_pb2, draft_pb2_grpc, types_pb2

Context = grpc.aio.ServicerContext[draft_pb2.DraftMessage, draft_pb2.DraftReply]


@dataclass
class _Stream:
    """What the checks of one stream remember: committed tokens and the last round."""

    session: Session
    length: int
    round: int = -1


class DraftService(draft_pb2_grpc.DraftServicer):
    """Serves a `DraftEngine`; a stream is a session, and its end frees it."""

    name = "outrider.v1.Draft"

    def __init__(self, engine: DraftEngine, vocabulary: Vocabulary) -> None:
        self._engine = engine
        self._vocabulary = vocabulary

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        draft_pb2_grpc.add_DraftServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Warms up and starts the engine."""
        await self._engine.start()

    async def stop(self) -> None:
        """Stops the engine."""
        await self._engine.stop()

    async def Propose(
        self, request_iterator: AsyncIterator[draft_pb2.DraftMessage], context: Context
    ) -> AsyncIterator[draft_pb2.DraftReply]:
        """One session: Open, then a proposal for the newest of the requests that wait.

        A half-closed stream ends behind the answers that are due, a cancelled one at once.
        """
        opened = await anext(aiter(request_iterator), None)
        if opened is None or opened.WhichOneof("message") != "open":
            raise InvalidArgument("message: the first of a stream must be open")
        session = self._open(opened.open)
        stream = _Stream(session, len(session.prompt))
        reader = asyncio.create_task(self._read(request_iterator, stream))
        reader.add_done_callback(lambda task: _input_ended(task, session))
        try:
            async for reply in session.replies():
                yield _reply_to_proto(reply, opened.open.method)
            await reader
        except EngineStopped as error:
            raise Unavailable(str(error)) from error
        finally:
            self._engine.close(session)
            reader.cancel()

    async def GetInfo(
        self, request: draft_pb2.DraftInfoRequest, context: Context
    ) -> draft_pb2.DraftInfo:
        """Vocabulary, drafters, limits and counters."""
        limits = self._engine.limits
        return draft_pb2.DraftInfo(
            model=types_pb2.ModelInfo(
                name=self._vocabulary.name,
                tokenizer_fingerprint=self._vocabulary.tokenizer_fingerprint,
                vocab_size=self._vocabulary.size,
                context_length=self._vocabulary.context_length,
            ),
            drafters=[_drafter_to_proto(drafter) for drafter in self._engine.drafters.values()],
            max_depth=limits.max_depth,
            max_nodes=limits.max_nodes,
            max_sessions=limits.max_sessions,
            live_sessions=self._engine.live_sessions,
            sessions_total=self._engine.sessions_total,
        )

    def _open(self, message: draft_pb2.DraftOpen) -> Session:
        if message.method not in self._engine.drafters:
            known = ", ".join(self._engine.drafters)
            raise InvalidArgument(
                f"open.method: {message.method!r} is unknown, limit one of {known}"
            )
        check_range(
            "open.prompt_ids: length", len(message.prompt_ids), 1, self._vocabulary.context_length
        )
        check_tokens("open.prompt_ids", message.prompt_ids, self._vocabulary.size)
        sampling = sampling_from_proto(message.sampling)
        try:
            return self._engine.open(message.method, tuple(message.prompt_ids), sampling)
        except EngineFull as error:
            raise ResourceExhausted(str(error)) from error

    async def _read(self, messages: AsyncIterator[draft_pb2.DraftMessage], stream: _Stream) -> None:
        async for message in messages:
            if message.WhichOneof("message") != "request":
                raise InvalidArgument("message: all but the first of a stream must be requests")
            await stream.session.submit(self._check(message.request, stream))

    def _check(self, message: draft_pb2.DraftRequest, stream: _Stream) -> Request:
        """The request, if it fits the session; the stream's round and length move on."""
        limits = self._engine.limits
        check_tokens("request.new_tokens", message.new_tokens, self._vocabulary.size)
        check_range("request.samples: length", len(message.samples), 0, limits.max_nodes + 1)
        check_tokens("request.samples", message.samples, self._vocabulary.size)
        if message.round <= stream.round:
            raise FailedPrecondition(f"request.round: {message.round}, limit above {stream.round}")
        length = stream.length + len(message.new_tokens)
        if message.base_len != length:
            raise FailedPrecondition(
                f"request.base_len: {message.base_len}, limit {length}: "
                f"{stream.length} tokens of the session and {len(message.new_tokens)} new ones"
            )
        check_range("request.base_len", length, 1, self._vocabulary.context_length)
        budget = budget_from_proto(message.budget, limits.max_depth, limits.max_nodes, limits.max_m)
        if message.budget.time_left_ms == 0:
            budget = replace(budget, time_left_s=math.inf)
        request = Request(
            round=message.round,
            base_len=message.base_len,
            new_tokens=tuple(message.new_tokens),
            budget=budget,
            features=[features_from_proto(features) for features in message.features],
            samples=tuple(message.samples),
        )
        stream.round, stream.length = message.round, length
        return request


def _input_ended(reader: asyncio.Task[None], session: Session) -> None:
    if not reader.cancelled():
        reader.exception()  # a stream that is cancelled meanwhile asks no more
    session.finish()


def _reply_to_proto(reply: Reply, method: str) -> draft_pb2.DraftReply:
    if isinstance(reply, Prefilled):
        return draft_pb2.DraftReply(ready=draft_pb2.Ready(prefill_us=reply.prefill_us))
    request = reply.request
    return draft_pb2.DraftReply(
        proposal=proposal_to_proto(request.round, request.base_len, reply.proposal, method)
    )


def _drafter_to_proto(drafter: Drafter) -> draft_pb2.DrafterInfo:
    spec = drafter.features
    return draft_pb2.DrafterInfo(
        method=drafter.method,
        recommended_depth=drafter.recommended_depth,
        recommended_nodes=drafter.recommended_nodes,
        features=None
        if spec is None
        else types_pb2.FeatureSpec(taps=spec.taps, window=spec.window),
        wants_samples=drafter.wants_samples,
        whole_trees=drafter.whole_trees,
        model=drafter.model_name,
        numerics=None if drafter.numerics is None else numerics_to_proto(drafter.numerics),
    )
