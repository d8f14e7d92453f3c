"""Who may talk to whom: TLS by file paths, bearer tokens, and plaintext on loopback only."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

AUTHORIZATION = "authorization"
SCHEME = "Bearer "


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        ValueError: there is no host, or the port is not within 0 to 65535.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"address {address!r} is not HOST:PORT")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"port {port!r} of address {address!r} is not within 0 to 65535")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether the host of `HOST:PORT` is this machine's loopback, by name or number."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Security:
    """How a caller proves itself and whom it trusts.

    Args:
        tls: encrypt, trusting `ca`, or the system's authorities without it. A `ca` implies it.
        ca: file of the authority that the server's certificate must come from.
        cert, key: files of the caller's own certificate (mTLS).
        token: bearer token.
        insecure: allow plaintext beyond loopback.
    """

    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)
    insecure: bool = False

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key: one is given without the other")
        if self.cert is not None and not self.encrypted:
            raise ValueError("cert: given without tls or a ca")

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used."""
        return self.tls or self.ca is not None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call carries."""
        return () if self.token is None else ((AUTHORIZATION, SCHEME + self.token),)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS credentials of the channel; None for plaintext."""
        if not self.encrypted:
            return None
        return grpc.ssl_channel_credentials(
            *(_read(path) for path in (self.ca, self.key, self.cert))
        )

    def check(self, address: str) -> None:
        """Refuses plaintext to other machines.

        Raises:
            ValueError: the address is not loopback, there is no TLS and `insecure` is not set.
        """
        if not self.encrypted and not self.insecure and not is_loopback(address):
            raise ValueError(
                f"address {address!r} is not loopback: give TLS files or allow insecure"
            )


def token_matches(metadata: Sequence[tuple[str, str | bytes]], token: str) -> bool:
    """Whether call metadata carry the bearer token, compared in constant time."""
    expected = (SCHEME + token).encode()
    for key, value in metadata:
        if key == AUTHORIZATION:
            given = value if isinstance(value, bytes) else value.encode()
            return hmac.compare_digest(given, expected)
    return False


def server_credentials(cert: Path, key: Path, ca: Path | None) -> grpc.ServerCredentials:
    """TLS of a server; with `ca` callers must show a certificate from it."""
    pair = (key.read_bytes(), cert.read_bytes())
    return grpc.ssl_server_credentials([pair], _read(ca), require_client_auth=ca is not None)


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
