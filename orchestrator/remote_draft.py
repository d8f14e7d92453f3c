"""The Drafter over gRPC.

A stream that breaks costs one deadline at most; the next one opens with the whole committed prefix.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from outrider.core.round import Budget, Features, Proposal, SamplingParams
from outrider.drafting.base import FeatureSpec
from outrider.serving.errors import ServiceError
from outrider.serving.wire import features_to_proto, sampling_to_proto
from outrider.serving.wire_rounds import budget_to_proto, proposal_from_proto
from outrider.v1 import draft_pb2

logger = logging.getLogger(__name__)

REOPEN_S = (0.2, 0.5, 1.0, 2.0)  # pauses between attempts; the last one repeats
# A new stream would end alike.
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)


class RemoteDrafter:
    """A session on a draft replica, and on another one when that is lost.

    on_open: hears of each session that is ready, and of the time its prefill took, microseconds.

    Args:
        connect: gives a new Propose call on a live replica and what to call behind it; None: there
            is none.
        end: committed tokens at which the request ends at the latest.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[tuple[Any, Callable[[], None]] | None]],
        method: str,
        request_id: str,
        prompt: Sequence[int],
        sampling: SamplingParams,
        end: int,
        vocab_size: int,
        features: FeatureSpec | None = None,
        wants_samples: bool = False,
    ) -> None:
        self.method = method
        self.wants_samples = wants_samples
        self.late = 0
        self.round_bytes = 0
        self.features = features
        self._fed = features is None
        self._connect = connect
        self._request_id = request_id
        self._sampling = sampling
        self._end = end
        self._vocab_size = vocab_size
        self._tokens = list(prompt)
        self._sent = 0
        self._pending_features: list[Features] = []
        self._samples: Sequence[int] = ()
        self._round = 0
        self._call: Any = None
        self.on_open: Callable[[int], None] = lambda prefill_us: None
        self._opened = False
        self._refused = False
        self._waiting: asyncio.Future[draft_pb2.Proposal | None] | None = None
        self._outstanding = 0
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Opens a session behind what was observed so far, and keeps one open."""
        self._task = asyncio.create_task(self._keep_open(), name="drafter")

    @property
    def ready(self) -> bool:
        """Whether the replica has prefilled and owes no reply, and features have come where it
        wants any."""
        return self._opened and self._outstanding == 0 and self._fed

    def observe(
        self, tokens: Sequence[int], features: Sequence[Features], samples: Sequence[int]
    ) -> None:
        """Tokens were committed, the new root last; they ride in the next request.

        So do the samples of the last tree, also where a free run came in between.
        """
        self._tokens += tokens
        if self.features is not None:
            self._pending_features += features
            self._fed |= bool(features)
        if samples:
            self._samples = samples

    async def propose(self, budget: Budget) -> Proposal | None:
        """A tree behind the last observed token; None where it came too late or not at all."""
        if not self.ready:
            return None
        self._round += 1
        base_len, root = len(self._tokens), self._tokens[-1]  # more may be observed meanwhile
        request = draft_pb2.DraftRequest(
            round=self._round,
            base_len=base_len,
            new_tokens=self._tokens[self._sent :],
            samples=self._samples,
            budget=budget_to_proto(budget),
        )
        self.round_bytes += request.ByteSize()
        request.features.extend(features_to_proto(part) for part in self._pending_features)
        self._sent = len(self._tokens)
        self._pending_features.clear()
        self._samples = ()
        self._outstanding += 1
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(budget.time_left_s):
                await self._call.write(draft_pb2.DraftMessage(request=request))
                message = await self._waiting
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return None
        finally:
            self._waiting = None
        return None if message is None else self._checked(message, budget, base_len, root)

    async def close(self) -> None:
        """Ends the session; the replica frees its cache."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _checked(
        self, message: draft_pb2.Proposal, budget: Budget, base_len: int, root: int
    ) -> Proposal | None:
        try:
            proposal = proposal_from_proto(message, root, self.method, self._vocab_size, budget.m)
        except ServiceError as error:  # a wrong drafter costs its proposal, never the request
            logger.warning("%s: proposal dropped: %s", self._request_id, error)
            return None
        tree = proposal.tree
        if message.base_len != base_len:
            logger.warning(
                "%s: proposal at %d tokens dropped, limit %d",
                self._request_id,
                message.base_len,
                base_len,
            )
            return None
        if tree.depth > budget.depth or tree.drafted > budget.nodes:
            logger.warning(
                "%s: proposal of depth %d, %d nodes dropped",
                self._request_id,
                tree.depth,
                tree.drafted,
            )
            return None
        if proposal.drawn_from and not self._sampling.draws:
            logger.warning(
                "%s: drawn proposal for a greedy or seeded request dropped", self._request_id
            )
            return None
        return proposal

    async def _keep_open(self) -> None:
        """Opens a stream, reads it until it breaks, opens the next."""
        attempt = 0
        while not self._refused:
            connection = await self._connect()
            if connection is not None:
                self._call, release = connection
                try:
                    if await self._read_stream():
                        attempt = 0
                finally:
                    self._opened = False
                    self._outstanding = 0
                    self._call.cancel()
                    release()
                    self._resolve(None)
            await asyncio.sleep(REOPEN_S[min(attempt, len(REOPEN_S) - 1)])
            attempt += 1

    async def _read_stream(self) -> bool:
        """Opens and reads one stream until it ends; whether it ever became ready."""
        became_ready = False
        self._round = 0
        self._sent = len(self._tokens)
        self._samples = ()  # of a tree that the new session never made
        opening = draft_pb2.DraftOpen(
            request_id=self._request_id,
            method=self.method,
            prompt_ids=self._tokens,
            sampling=sampling_to_proto(self._sampling),
            max_tokens=max(1, self._end - len(self._tokens)),
        )
        try:
            await self._call.write(draft_pb2.DraftMessage(open=opening))
            while (reply := await self._call.read()) is not grpc.aio.EOF:
                if reply.HasField("ready"):
                    became_ready = self._opened = True
                    self.on_open(reply.ready.prefill_us)
                else:
                    self._receive(reply.proposal)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._refused = isinstance(error, grpc.aio.AioRpcError) and error.code() in REFUSALS
            logger.warning("%s: drafter %s lost: %s", self._request_id, self.method, _reason(error))
        except asyncio.CancelledError:
            # grpc cancels the call where a write is cancelled: one that flow control held past its
            # deadline.
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            logger.warning(
                "%s: drafter %s lost: it takes no requests", self._request_id, self.method
            )
        return became_ready

    def _receive(self, message: draft_pb2.Proposal) -> None:
        self._outstanding = max(0, self._round - message.round)
        if message.round == self._round and self._waiting is not None:
            self.round_bytes += message.ByteSize()
            self._resolve(message)
        else:
            self.late += 1

    def _resolve(self, message: draft_pb2.Proposal | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(message)


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
