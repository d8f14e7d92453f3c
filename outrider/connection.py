"""What both clients are made with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from outrider.retries import Attempts, Retry
from outrider.serving.auth import Security
from outrider.serving.channels import MAX_MESSAGE_MIB

TIMEOUT_S = 600.0


class Connection:
    """A client's address and how it is reached.

    Args:
        address: HOST:PORT of the orchestrator.
        token: bearer token.
        tls: encrypt, trusting the system's authorities.
        ca: file of the authority that the server's certificate must come from; implies tls.
        cert, key: files of the own certificate (mTLS).
        insecure: allow plaintext beyond loopback.
        timeout: seconds that a call may take where it does not say so itself.
        retry: what to do while the server is unavailable.
        max_message_mib: largest message, MiB.

    Raises:
        ValueError: the address is malformed, options contradict, or plaintext would leave this
            machine.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls: bool = False,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        insecure: bool = False,
        timeout: float = TIMEOUT_S,
        retry: Retry | None = None,
        max_message_mib: int = MAX_MESSAGE_MIB,
    ) -> None:
        ca, cert, key = (None if path is None else Path(path) for path in (ca, cert, key))
        security = Security(tls=tls, ca=ca, cert=cert, key=key, token=token, insecure=insecure)
        self.address = address
        self._timeout = timeout
        self._retry = retry or Retry()
        self.metadata = security.metadata
        self.open_channel(dataclasses.replace(security, token=None), max_message_mib)

    def open_channel(self, security: Security, max_message_mib: int) -> None:
        """Sets up the channel; it connects on the first call."""
        raise NotImplementedError

    def attempts(self, timeout: float | None) -> Attempts:
        """The attempts of a call that may take `timeout` seconds, by default the client's."""
        return Attempts(self._retry, self._timeout if timeout is None else timeout)
