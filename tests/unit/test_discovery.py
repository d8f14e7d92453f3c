"""A name that resolves to several addresses stands for as many replicas."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from outrider.serving import discovery


def answer(monkeypatch: pytest.MonkeyPatch, *ips: str) -> None:
    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


async def test_an_ip_address_stands_for_itself() -> None:
    assert await discovery.replicas("127.0.0.1:50052") == ["127.0.0.1:50052"]


async def test_a_name_with_two_addresses_is_two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "10.0.0.3", "10.0.0.2", "10.0.0.2")
    assert await discovery.replicas("draft:50052") == ["10.0.0.2:50052", "10.0.0.3:50052"]


async def test_localhost_is_one_machine_whatever_it_resolves_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, "127.0.0.1", "::1")
    assert await discovery.replicas("localhost:50052") == ["localhost:50052"]


async def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(OSError, match=r"."):
        await discovery.replicas("no-such-host.invalid:50052")
