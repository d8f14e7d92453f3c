"""Replicas behind one name.

A name that resolves to several addresses stands for as many replicas.
"""

from __future__ import annotations

import asyncio
import socket

from outrider.serving.auth import split_address


async def replicas(address: str, deadline_s: float = 5.0) -> list[str]:
    """Every `IP:PORT` behind `HOST:PORT`, sorted and each once; an IP address stands for itself.

    Container networks answer for a scaled service this way. With TLS the certificates must then
    name the addresses. `localhost` is one machine, whatever it resolves to.

    Raises:
        ValueError: the address is malformed.
        OSError: the name is unknown, or nobody answered within the deadline (TimeoutError).
    """
    host, port = split_address(address)
    if host == "localhost":
        return [address]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(deadline_s):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = {str(where[0]) for _, _, _, _, where in found}
    return sorted(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in hosts)
