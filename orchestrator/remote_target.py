"""The Verifier over gRPC: one Verify stream is one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from orchestrator.peers import PeerFull, PeerLost, PeerRefused, RunTokens
from outrider.core.round import Commit, Evidence, Features, Ids, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import FeatureSpec
from outrider.serving.errors import InvalidArgument, ServiceError
from outrider.serving.wire import (
    commit_to_proto,
    features_from_proto,
    load_from_proto,
    sampling_to_proto,
    support_to_proto,
    tree_to_proto,
)
from outrider.serving.wire_rounds import evidence_from_proto
from outrider.v1 import target_pb2, types_pb2

ACK_EVERY = 8  # tokens of a free run between two acknowledgements


class RemoteVerifier:
    """A session on one target replica.

    Args:
        deadline_s: longest wait for one reply; a prefill may take ten times as long.
    """

    def __init__(self, stub: Any, vocab_size: int, deadline_s: float) -> None:
        self._stub = stub
        self._vocab_size = vocab_size
        self._deadline_s = deadline_s
        self._call: Any = None
        self._round = 0
        self._features: list[Features] = []
        self._bytes = 0

    async def open(
        self,
        request_id: str,
        prompt: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        features: FeatureSpec | None,
        *,
        later: bool = False,
    ) -> None:
        """Starts the stream and the prefill; later: no features before `want_features`."""
        self._call = self._stub.Verify()
        await self._write(
            open=target_pb2.TargetOpen(
                request_id=request_id,
                prompt_ids=prompt,
                sampling=sampling_to_proto(sampling),
                max_tokens=max_tokens,
                features=None
                if features is None
                else types_pb2.FeatureSpec(taps=features.taps, window=features.window),
                features_later=later,
            )
        )

    def close(self) -> None:
        """Ends the session; the replica frees its cache."""
        if self._call is not None:
            self._call.cancel()

    @property
    def round_bytes(self) -> int:
        """Serialised bytes of all VerifyRequests and Evidences so far, features apart."""
        return self._bytes

    async def prefill(self) -> Evidence:
        """Evidence of the prompt's last token.

        Raises:
            InvalidArgument: the target can never hold the text.
        """
        try:
            return await self._evidence({}, 10 * self._deadline_s)
        except PeerRefused as error:
            raise InvalidArgument(error.details) from error

    async def verify(
        self,
        base_len: int,
        commit: Commit | None,
        tree: TokenTree,
        supports: Mapping[int, Ids],
        tree_exact: bool,
    ) -> Evidence:
        """Evidence for `tree`; PeerLost where the replica is gone."""
        self._round += 1
        request = target_pb2.VerifyRequest(
            round=self._round,
            base_len=base_len,
            commit=None if commit is None else commit_to_proto(commit),
            root=tree.tokens[0],
            tree=tree_to_proto(tree),
            supports=[support_to_proto(node, ids) for node, ids in supports.items()],
            tree_exact=None if tree_exact else False,
        )
        self._bytes += request.ByteSize()
        await self._write(verify=request)
        return await self._evidence(
            {node: ids.size for node, ids in supports.items()}, self._deadline_s
        )

    async def free_run(
        self,
        base_len: int,
        commit: Commit | None,
        root: int,
        max_tokens: int,
        stop_ids: Sequence[int],
    ) -> AsyncGenerator[RunTokens, None]:
        """Tokens that the target commits by itself."""
        self._round += 1
        await self._write(
            free_run=target_pb2.FreeRun(
                round=self._round,
                base_len=base_len,
                commit=None if commit is None else commit_to_proto(commit),
                root=root,
                max_tokens=max_tokens,
                stop_ids=stop_ids,
            )
        )
        acknowledged = base_len
        while True:
            reply = await self._read(self._deadline_s)
            if reply.WhichOneof("message") == "free_run_end":
                return
            tokens = reply.free_run_tokens
            yield RunTokens(
                tuple(tokens.tokens),
                tokens.queue_us,
                tokens.forward_us,
                load_from_proto(tokens.load),
                _features(tokens.features) if tokens.HasField("features") else None,
            )
            if tokens.base_len - acknowledged >= ACK_EVERY:
                acknowledged = tokens.base_len
                await self._write(acknowledge=target_pb2.Acknowledge(base_len=acknowledged))

    async def want_features(self) -> None:
        """Features come from the next step of the free run on."""
        await self._write(acknowledge=target_pb2.Acknowledge(features=True))

    async def halt(self) -> None:
        """Ends a free run soon."""
        await self._write(halt=target_pb2.Halt())

    def take_features(self) -> list[Features]:
        """Feature rows that came in front of the last evidence, each once."""
        taken, self._features = self._features, []
        return taken

    async def _evidence(self, supports: Mapping[int, int], deadline_s: float) -> Evidence:
        while True:
            reply = await self._read(deadline_s)
            message = reply.evidence
            if reply.WhichOneof("message") == "features":
                self._features.append(_features(reply.features))
                continue
            try:
                apart = message.features.ByteSize() if message.HasField("features") else 0
                self._bytes += message.ByteSize() - apart
                return evidence_from_proto(message, supports)
            except ServiceError as error:
                raise PeerLost(f"target: {error}") from error

    async def _write(self, **message: Any) -> None:
        try:
            async with asyncio.timeout(
                self._deadline_s
            ):  # flow control, or a peer that accepts and says nothing
                await self._call.write(target_pb2.TargetRequest(**message))
        except TimeoutError as error:
            raise PeerLost(f"target: takes no message within {self._deadline_s:g} s") from error
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise _lost(await self._call.code(), await self._call.details()) from error

    async def _read(self, deadline_s: float) -> target_pb2.TargetReply:
        try:
            async with asyncio.timeout(deadline_s):
                reply = await self._call.read()
        except TimeoutError as error:
            self._call.cancel()
            raise PeerLost(f"target: no reply within {deadline_s:g} s") from error
        except grpc.aio.AioRpcError as error:
            raise _lost(error.code(), error.details()) from error
        if reply is grpc.aio.EOF:
            raise _lost(await self._call.code(), await self._call.details())
        message: target_pb2.TargetReply = reply
        return message


def _features(message: types_pb2.Features) -> Features:
    try:
        return features_from_proto(message)
    except ServiceError as error:
        raise PeerLost(f"target: {error}") from error


def _lost(code: grpc.StatusCode, details: str | None) -> PeerLost:
    message = f"target: {code.name}: {details}"
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return PeerRefused(message, details or "")
    return PeerFull(message) if code is grpc.StatusCode.RESOURCE_EXHAUSTED else PeerLost(message)
