"""The Verify RPC: messages in, engine calls, messages out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio

from outrider.models.pool import BLOCK
from outrider.serving.errors import InvalidArgument
from outrider.serving.wire import (
    check_range,
    check_tokens,
    numerics_to_proto,
    sampling_from_proto,
)
from outrider.v1 import target_pb2, target_pb2_grpc, types_pb2
from target_service.conversation import Conversation, Inbox
from target_service.engine import Engine
from target_service.memory import Memory
from target_service.session import FeatureRequest, Session
from target_service.settings import TargetSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from outrider.models.profile import PassTime

Context = Any  # grpc.aio.ServicerContext is generic in stubs only


class TargetService(target_pb2_grpc.TargetServicer):
    """Serves one model; `profile` has the times of its passes, where they were measured."""

    def __init__(
        self, engine: Engine, settings: TargetSettings, profile: Sequence[PassTime] = ()
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._profile = profile

    @property
    def name(self) -> str:
        """Full gRPC service name."""
        return "outrider.v1.Target"

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        target_pb2_grpc.add_TargetServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Warms the engine up."""
        await self._engine.start()

    async def stop(self) -> None:
        """Ends the engine."""
        await self._engine.stop()

    async def Verify(
        self, requests: AsyncIterator[target_pb2.TargetRequest], context: Context
    ) -> None:
        """One session, from Open to the end of the stream."""
        inbox = Inbox(requests)
        session: Session | None = None
        try:
            first = await inbox.take()
            if first is None or first.WhichOneof("message") != "open":
                raise InvalidArgument("message: the first one of a stream must be open")
            session = self._open(first.open)
            await Conversation(self._engine, session, self._settings, inbox, context).run()
        finally:
            inbox.close()
            if session is not None:
                self._engine.close(session)

    async def GetInfo(
        self, request: target_pb2.TargetInfoRequest, context: Context
    ) -> target_pb2.TargetInfo:
        """Model, limits and counters."""
        model, settings = self._engine.model, self._settings
        return target_pb2.TargetInfo(
            model=types_pb2.ModelInfo(
                name=model.name,
                tokenizer_fingerprint=model.tokenizer_fingerprint,
                vocab_size=model.vocab_size,
                context_length=model.context_length,
                numerics=numerics_to_proto(model.numerics),
            ),
            max_nodes=settings.max_nodes,
            max_sessions=settings.max_sessions,
            layers=model.layers,
            hidden_size=model.hidden_size,
            live_sessions=self._engine.live_sessions,
            sessions_total=self._engine.sessions_total,
            max_support=settings.max_support,
            eos_ids=model.eos_ids,
            profile=[
                target_pb2.PassTime(rows=p.rows, context=p.context, forward_us=p.forward_us)
                for p in self._profile
            ],
            kv_memory=_kv_memory(self._engine.memory),
            max_batch=self._settings.max_batch,
        )

    def _open(self, message: target_pb2.TargetOpen) -> Session:
        model = self._engine.model
        if not message.prompt_ids:
            raise InvalidArgument("prompt_ids: 0 tokens, limit at least 1")
        check_range("max_tokens", message.max_tokens, 1, model.context_length)
        check_range(
            "prompt_ids + max_tokens",
            len(message.prompt_ids) + message.max_tokens,
            2,
            model.context_length,
        )
        check_tokens("prompt_ids", message.prompt_ids, model.vocab_size)
        features = None
        if message.HasField("features"):
            taps = message.features.taps
            check_range("features.taps: number", len(taps), 1, model.layers + 1)
            for tap in taps:
                check_range("features.taps", tap, 0, model.layers)
            if len(set(taps)) != len(taps):
                raise InvalidArgument("features.taps: a layer occurs twice, limit once each")
            features = FeatureRequest(tuple(message.features.taps), message.features.window)
        sampling = sampling_from_proto(message.sampling)
        now, later = (None, features) if message.features_later else (features, None)
        session = self._engine.open(
            message.request_id, message.prompt_ids, sampling, message.max_tokens, now
        )
        session.later = later
        return session


def _kv_memory(memory: Memory) -> target_pb2.KvMemory:
    prefix = memory.prefix
    return target_pb2.KvMemory(
        block_tokens=BLOCK,
        blocks=memory.pool.size,
        blocks_used=memory.pool.used,
        blocks_kept=prefix.blocks,
        prompt_tokens=prefix.asked_rows,
        prompt_tokens_found=prefix.found_rows,
        sessions_forgotten=memory.sessions_forgotten,
    )
