"""Which replicas there are, whether they answer, and which one takes the next session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from outrider.serving.auth import Security
from outrider.serving.channels import connect
from outrider.serving.discovery import replicas
from outrider.serving.errors import ServiceError

logger = logging.getLogger(__name__)

INFO_DEADLINE_S = 5.0
Info = TypeVar("Info")


@dataclass(eq=False)
class Replica(Generic[Info]):
    """One server behind an address; `info` is None while it does not answer."""

    address: str
    channel: grpc.aio.Channel
    stub: Any
    info: Info | None = None
    sessions: int = 0
    refused: str = ""

    def take(self) -> None:
        """A session of ours opened on it."""
        self.sessions += 1

    def release(self) -> None:
        """A session of ours ended."""
        self.sessions -= 1


class Pool(Generic[Info]):
    """The replicas of one service.

    Args:
        addresses: HOST:PORT each; a name that resolves to several addresses stands for as many
            replicas.
        make_stub: the service's stub on a channel.
        check: raises ServiceError where a replica does not fit; it is then never used.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        make_stub: Callable[[grpc.aio.Channel], Any],
        get_info: Callable[[Any], Awaitable[Info]],
        check: Callable[[str, Info], None],
        security: Security,
    ) -> None:
        self._addresses = list(addresses)
        self._make_stub = make_stub
        self._get_info = get_info
        self._check = check
        self._security = security
        self._replicas: dict[str, Replica[Info]] = {}

    def live(self) -> list[Replica[Info]]:
        """Replicas that answered last time and fit."""
        return [replica for replica in self._replicas.values() if replica.info is not None]

    def refusals(self) -> list[str]:
        """Why replicas are not used, though they answer."""
        return [replica.refused for replica in self._replicas.values() if replica.refused]

    def pick(self, fits: Callable[[Info], bool] = lambda info: True) -> Replica[Info] | None:
        """The live replica with the fewest sessions of ours; None where there is none."""
        live = [
            replica for replica in self.live() if replica.info is not None and fits(replica.info)
        ]
        return min(live, key=lambda replica: replica.sessions, default=None)

    async def refresh(self) -> None:
        """Resolves the names again and asks every replica for its info."""
        found: set[str] = set()
        for address in self._addresses:
            try:
                found.update(await replicas(address))
            except OSError as error:
                logger.debug("%s: %s", address, error)
        for address in found - self._replicas.keys():
            channel = connect(address, self._security)
            self._replicas[address] = Replica(address, channel, self._make_stub(channel))
        gone = [
            a
            for a, r in self._replicas.items()
            if a not in found and r.info is None and not r.sessions
        ]
        for address in gone:
            await self._replicas.pop(address).channel.close()
        await asyncio.gather(*(self._look(replica) for replica in self._replicas.values()))

    async def close(self) -> None:
        """Closes every channel."""
        for replica in self._replicas.values():
            await replica.channel.close()

    async def _look(self, replica: Replica[Info]) -> None:
        try:
            async with asyncio.timeout(INFO_DEADLINE_S):
                info = await self._get_info(replica.stub)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            if replica.info is not None:
                logger.warning("%s does not answer: %s", replica.address, type(error).__name__)
            replica.info = None
            return
        try:
            self._check(replica.address, info)
        except ServiceError as error:
            if not replica.refused:
                logger.error("%s is not used: %s", replica.address, error)
            replica.refused, replica.info = str(error), None
            return
        if replica.info is None:
            logger.info("%s answers", replica.address)
        replica.refused, replica.info = "", info
