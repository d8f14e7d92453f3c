"""The client that a command works with: of an address, or of a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.cli.cluster import Cluster
from outrider.cli.console import err
from outrider.client import Client

Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of an orchestrator. Default: start a cluster for this command."),
]
Token = Annotated[str | None, typer.Option(envvar="OUTRIDER_TOKEN", help="Bearer token.")]
Ca = Annotated[
    Path | None, typer.Option(help="File of the authority behind the server's certificate.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plaintext beyond loopback.")]


@dataclass(frozen=True)
class Door:
    """Where to: an address and how to reach it, or what the own cluster should serve."""

    address: str | None
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    insecure: bool = False
    target: str = "default"
    drafters: list[str] | None = None
    dtype: str = "auto"
    device: str = "cpu"
    redis_url: str | None = None

    @contextmanager
    def open(self) -> Iterator[Client]:
        """The client; an own cluster is stopped behind the block.

        Raises:
            ClusterError: the own cluster did not start, or died.
            ValueError: plaintext would leave this machine, or settings of an own cluster stand
                beside an address.
        """
        if self.address is not None:
            self._check_own()
        with ExitStack() as stack:
            address = self.address
            if address is None:
                status = stack.enter_context(err().status("starting a cluster"))
                cluster = Cluster(
                    self.target,
                    self.drafters,
                    self.dtype,
                    self.device,
                    self.redis_url,
                    say=status.update,
                )
                address = stack.enter_context(cluster).address
                status.stop()
            client = Client(address, token=self.token, ca=self.ca, insecure=self.insecure)
            yield stack.enter_context(client)

    def _check_own(self) -> None:
        default = Door(None)
        for name in ("target", "drafters", "dtype", "device", "redis_url"):
            value = getattr(self, name)
            if value != getattr(default, name):
                raise ValueError(
                    f"{name}: {value!r} is for a cluster that this command starts, "
                    f"but address {self.address} names one that runs"
                )


def speculative(
    method: str | None, k: int | None, nodes: int | None = None
) -> dict[str, Any] | None:
    """The request's block for a method, a fixed K and most drafted nodes.

    Plain is K=0, None leaves the choice to the server.
    """
    if method == "plain" or k == 0:
        return {"n_max": 0}
    block: dict[str, Any] = {}
    if method is not None:
        block["method"] = method
    if k is not None:
        block |= {"n_max": k, "n_min": k}
    if nodes is not None:
        block["nodes_max"] = nodes
    return block or None
