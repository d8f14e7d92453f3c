"""Client and AsyncClient: text from an orchestrator.

    with Client("127.0.0.1:50050") as client:
        result = client.generate("Once upon a time", max_tokens=64, temperature=0.8, seed=7)
        for chunk in client.stream("Once upon a time"):
            ...

One Client may be used from many threads, and from greenlets once
`grpc.experimental.gevent.init_gevent()` was called. Every call raises what `outrider.exceptions`
draws. The two classes differ only in how they wait: requests, replies, retries and errors have one
home each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

import grpc
import grpc.aio

from outrider.connection import Connection
from outrider.replies import ReplyFolder, server_info
from outrider.requests import Options, chat_request, text_request
from outrider.results import Chunk, GenerationResult, ServerInfo
from outrider.serving.auth import Security
from outrider.serving.channels import connect, connect_blocking
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc

Messages = Sequence[Mapping[str, str]]


class Client(Connection):
    __doc__ = f"Blocking client, safe to share between threads.\n\n{Connection.__doc__}"

    def open_channel(self, security: Security, max_message_mib: int) -> None:
        self._channel = connect_blocking(self.address, security, max_message_mib=max_message_mib)
        self._stub = orchestrator_pb2_grpc.OrchestratorStub(self._channel)  # type: ignore[no-untyped-call]

    def generate(
        self,
        prompt: str | None = None,
        *,
        prompt_token_ids: Sequence[int] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> GenerationResult:
        """Text behind raw text or token ids.

        `Options` has the arguments, `timeout` is in seconds.
        """
        return _last(
            self.stream(prompt, prompt_token_ids=prompt_token_ids, timeout=timeout, **options)
        )

    def stream(
        self,
        prompt: str | None = None,
        *,
        prompt_token_ids: Sequence[int] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Generator[Chunk, None, None]:
        """The same in chunks as they are committed; `close()` cancels the call."""
        return self._chunks(text_request(prompt, prompt_token_ids, **options), timeout)

    def chat(
        self, messages: Messages, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> GenerationResult:
        """The model's answer to messages of `role` and `content`."""
        return _last(self.stream_chat(messages, timeout=timeout, **options))

    def stream_chat(
        self, messages: Messages, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> Generator[Chunk, None, None]:
        """The same in chunks."""
        return self._chunks(chat_request(messages, **options), timeout)

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """What is served, and the limits."""
        attempts = self.attempts(timeout)
        request = orchestrator_pb2.OrchestratorInfoRequest()
        while True:
            try:
                left = attempts.time_left_s()
                return server_info(
                    self._stub.GetInfo(request, timeout=left, metadata=self.metadata)
                )
            except grpc.RpcError as error:
                wait = attempts.wait_s(error, begun=False)
            time.sleep(wait)

    def close(self) -> None:
        """Closes the connection; calls still running end with Cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _chunks(
        self, request: orchestrator_pb2.GenerateRequest, timeout: float | None
    ) -> Generator[Chunk, None, None]:
        attempts = self.attempts(timeout)
        while True:
            folder = ReplyFolder()
            call = self._stub.Generate(
                request, timeout=attempts.time_left_s(), metadata=self.metadata
            )
            try:
                for reply in call:
                    yield folder.add(reply)
                return folder.finish()
            except grpc.RpcError as error:
                wait = attempts.wait_s(error, begun=folder.begun)
            finally:
                call.cancel()
            time.sleep(wait)


class AsyncClient(Connection):
    __doc__ = f"Client for asyncio.\n\n{Connection.__doc__}"

    def open_channel(self, security: Security, max_message_mib: int) -> None:
        self._channel = connect(self.address, security, max_message_mib=max_message_mib)
        self._stub = orchestrator_pb2_grpc.OrchestratorStub(self._channel)  # type: ignore[no-untyped-call]

    async def generate(
        self,
        prompt: str | None = None,
        *,
        prompt_token_ids: Sequence[int] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the call's deadline, sent to the server
        **options: Unpack[Options],
    ) -> GenerationResult:
        """As Client.generate."""
        return await _last_async(
            self.stream(prompt, prompt_token_ids=prompt_token_ids, timeout=timeout, **options)
        )

    def stream(
        self,
        prompt: str | None = None,
        *,
        prompt_token_ids: Sequence[int] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Chunk, None]:
        """As Client.stream; `aclose()` cancels the call."""
        return self._chunks(text_request(prompt, prompt_token_ids, **options), timeout)

    async def chat(
        self,
        messages: Messages,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        **options: Unpack[Options],
    ) -> GenerationResult:
        """As Client.chat."""
        return await _last_async(self.stream_chat(messages, timeout=timeout, **options))

    def stream_chat(
        self, messages: Messages, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[Chunk, None]:
        """As Client.stream_chat."""
        return self._chunks(chat_request(messages, **options), timeout)

    async def info(self, *, timeout: float | None = None) -> ServerInfo:  # noqa: ASYNC109
        """As Client.info."""
        attempts = self.attempts(timeout)
        request = orchestrator_pb2.OrchestratorInfoRequest()
        while True:
            try:
                left = attempts.time_left_s()
                return server_info(
                    await self._stub.GetInfo(request, timeout=left, metadata=self.metadata)
                )
            except grpc.RpcError as error:
                wait = attempts.wait_s(error, begun=False)
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Closes the connection; calls still running are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _chunks(
        self,
        request: orchestrator_pb2.GenerateRequest,
        timeout: float | None,  # noqa: ASYNC109
    ) -> AsyncGenerator[Chunk, None]:
        attempts = self.attempts(timeout)
        while True:
            folder = ReplyFolder()
            call = self._stub.Generate(
                request, timeout=attempts.time_left_s(), metadata=self.metadata
            )
            try:
                async for reply in call:
                    yield folder.add(reply)
                folder.finish()
                return
            except grpc.RpcError as error:
                wait = attempts.wait_s(error, begun=folder.begun)
            finally:
                call.cancel()
            await asyncio.sleep(wait)


def _last(chunks: Generator[Chunk, None, None]) -> GenerationResult:
    result = None
    for chunk in chunks:
        result = chunk.result
    assert result is not None, "ReplyFolder.finish has checked it"
    return result


async def _last_async(chunks: AsyncGenerator[Chunk, None]) -> GenerationResult:
    result = None
    async for chunk in chunks:
        result = chunk.result
    assert result is not None, "ReplyFolder.finish has checked it"
    return result
