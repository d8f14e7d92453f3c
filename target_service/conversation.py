"""One Verify stream behind its Open: rounds, free runs, and what may come when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from outrider.core.round import Commit, Features, Ids
from outrider.core.tree import TokenTree
from outrider.serving.errors import FailedPrecondition, InvalidArgument
from outrider.serving.wire import (
    check_range,
    check_tokens,
    commit_from_proto,
    features_to_proto,
    load_to_proto,
    support_from_proto,
    tree_from_proto,
)
from outrider.serving.wire_rounds import evidence_to_proto
from outrider.v1 import target_pb2
from target_service.engine import Engine
from target_service.schedule import RunTokens
from target_service.session import FreeRun, Session
from target_service.settings import TargetSettings

FEATURE_BYTES = 1 << 20  # most feature bytes in a message
Context = Any  # grpc.aio.ServicerContext is generic in stubs only


class Inbox:
    """The messages of a stream, of which the next may be awaited beside other things without losing
    any."""

    def __init__(self, requests: AsyncIterator[target_pb2.TargetRequest]) -> None:
        self._requests = requests
        self._next: asyncio.Task[target_pb2.TargetRequest | None] | None = None

    def peek(self) -> asyncio.Task[target_pb2.TargetRequest | None]:
        """The task that ends with the next message, or with None behind the last."""
        if self._next is None:
            self._next = asyncio.create_task(self._receive())
        return self._next

    async def take(self) -> target_pb2.TargetRequest | None:
        """The next message; None behind the last."""
        message = await self.peek()
        self._next = None
        return message

    def close(self) -> None:
        """Stops reading."""
        if self._next is not None:
            self._next.cancel()

    async def _receive(self) -> target_pb2.TargetRequest | None:
        return await anext(self._requests, None)


class Conversation:
    """Answers the messages of one session in their order."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        settings: TargetSettings,
        inbox: Inbox,
        context: Context,
    ) -> None:
        self._engine = engine
        self._session = session
        self._settings = settings
        self._inbox = inbox
        self._context = context

    async def run(self) -> None:
        """Prefills, then answers until the stream ends."""
        await self._pass(TokenTree.root_only(self._session.tokens[-1]), {}, tree_exact=True)
        while (message := await self._inbox.take()) is not None:
            kind = message.WhichOneof("message")
            if kind == "verify":
                await self._verify(message.verify)
            elif kind == "free_run":
                if not await self._free_run(message.free_run):
                    return
            elif kind == "acknowledge":  # it and halt may cross the end of a free run
                self._acknowledged(message.acknowledge)
            elif kind != "halt":
                raise InvalidArgument(
                    f"message: {kind}, limit verify, free_run, acknowledge or halt"
                )

    async def _verify(self, request: target_pb2.VerifyRequest) -> None:
        session, vocab = self._session, self._engine.model.vocab_size
        check_range("tree nodes", len(request.tree.tokens), 0, self._settings.max_nodes)
        tree = tree_from_proto(request.tree, request.root)
        check_tokens("tree.tokens", tree.tokens[1:], vocab)
        supports: dict[int, Ids] = {}
        for support in request.supports:
            check_range("supports.node", support.node, 0, len(tree) - 1)
            if support.node in supports:
                raise InvalidArgument(f"supports.node: {support.node} occurs twice")
            supports[support.node] = support_from_proto(support, vocab, self._settings.max_support)
            _check_support(tree, support.node, supports[support.node])
        if supports and not session.sampling.draws:
            raise InvalidArgument(
                "supports: a greedy or seeded session takes trees without drawn children only"
            )
        session.advance(request.round, request.base_len, self._decision(request), request.root)
        session.check_room(tree, self._engine.model.context_length)
        exact = request.tree_exact if request.HasField("tree_exact") else True
        await self._pass(tree, supports, tree_exact=exact)

    def _decision(self, request: target_pb2.VerifyRequest | target_pb2.FreeRun) -> Commit | None:
        if not request.HasField("commit"):
            return None
        # Within a step an unknown token would fail every session of that step.
        check_tokens("commit.emitted", [request.commit.emitted], self._engine.model.vocab_size)
        return commit_from_proto(request.commit)

    async def _pass(self, tree: TokenTree, supports: dict[int, Ids], *, tree_exact: bool) -> None:
        session = self._session
        parts: asyncio.Queue[Features | None] = asyncio.Queue()
        verify = self._engine.verify(session, tree, supports, tree_exact, parts.put_nowait)
        pending = asyncio.create_task(verify)
        pending.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (rows := await parts.get()) is not None:  # as each prefill chunk ends
                for part in _split(rows):
                    await self._write(features=features_to_proto(part))
            evidence = await pending
        finally:
            pending.cancel()
        message = evidence_to_proto(session.round, session.base_len, evidence, list(supports))
        await self._write(evidence=message)

    async def _free_run(self, request: target_pb2.FreeRun) -> bool:
        """Runs until the run ends; False where the stream ended first."""
        session = self._session
        check_range("max_tokens", request.max_tokens, 1, self._engine.model.context_length)
        check_tokens("stop_ids", request.stop_ids, self._engine.model.vocab_size)
        session.advance(request.round, request.base_len, self._decision(request), request.root)
        end = session.base_len + request.max_tokens
        if end > session.limit:
            raise FailedPrecondition(
                f"max_tokens: {request.max_tokens}, limit {session.limit - session.base_len}"
            )
        outcomes: asyncio.Queue[RunTokens | BaseException] = asyncio.Queue()
        state = FreeRun(end, frozenset(request.stop_ids), session.base_len)
        self._engine.free_run(session, state, outcomes.put_nowait, outcomes.put_nowait)
        waiting = asyncio.create_task(outcomes.get())
        try:
            while True:
                await asyncio.wait(
                    [waiting, self._inbox.peek()], return_when=asyncio.FIRST_COMPLETED
                )
                if self._inbox.peek().done() and not self._control(await self._inbox.take()):
                    return False
                if waiting.done():
                    outcome = waiting.result()
                    if isinstance(outcome, BaseException):
                        raise outcome
                    await self._tell(outcome)
                    if outcome.ended:
                        return True
                    waiting = asyncio.create_task(outcomes.get())
        finally:
            waiting.cancel()

    def _control(self, message: target_pb2.TargetRequest | None) -> bool:
        """Obeys a message that may come during a free run; False where the stream has ended."""
        if message is None:
            return False
        kind = message.WhichOneof("message")
        if kind == "acknowledge":
            self._acknowledged(message.acknowledge)
        elif kind == "halt":
            self._engine.halt(self._session)
        else:
            raise FailedPrecondition(
                f"message: {kind} during a free run, limit acknowledge or halt"
            )
        return True

    def _acknowledged(self, message: target_pb2.Acknowledge) -> None:
        if message.base_len > self._session.base_len:
            raise FailedPrecondition(
                f"acknowledge.base_len: {message.base_len}, limit {self._session.base_len}"
            )
        if message.features:
            self._session.want_features()
        self._engine.acknowledge(self._session, message.base_len)

    async def _tell(self, outcome: RunTokens) -> None:
        if outcome.tokens:
            tokens = target_pb2.FreeRunTokens(
                tokens=outcome.tokens,
                base_len=outcome.base_len,
                queue_us=outcome.queue_us,
                forward_us=outcome.forward_us,
                load=load_to_proto(outcome.load),
                features=None if outcome.features is None else features_to_proto(outcome.features),
            )
            await self._write(free_run_tokens=tokens)
        if outcome.ended:
            await self._write(free_run_end=target_pb2.FreeRunEnd(base_len=outcome.base_len))

    async def _write(self, **message: Any) -> None:
        await self._context.write(target_pb2.TargetReply(**message))


def _check_support(tree: TokenTree, node: int, ids: Ids) -> None:
    children = {tree.tokens[child] for child in tree.children[node]}
    strangers = children - set(ids.tolist())
    if strangers or not children:
        raise InvalidArgument(
            f"supports: node {node} has {len(children)} children, "
            f"of which {sorted(strangers)} are not in its ids"
        )


def _split(features: Features) -> list[Features]:
    """Parts of at most FEATURE_BYTES each."""
    row_bytes = 2 * features.width
    step = max(1, FEATURE_BYTES // row_bytes)
    return [
        Features(
            features.start + first,
            min(step, features.rows - first),
            features.width,
            features.data[first * row_bytes : (first + step) * row_bytes],
        )
        for first in range(0, features.rows, step)
    ]
