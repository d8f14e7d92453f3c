"""`outrider info`: what a running deployment serves."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from outrider.cli.console import ending_well, out
from outrider.cli.door import Ca, Door, Insecure, Token
from outrider.results import ServerInfo


def info(
    address: Annotated[str, typer.Option(help="HOST:PORT of an orchestrator.")] = "127.0.0.1:50050",
    token: Token = None,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Show what a running deployment serves: model, numbers, drafters, limits, load."""
    with ending_well(), Door(address, token, ca, insecure).open() as client:
        table = Table(Column(), Column(overflow="fold"), show_header=False)
        for name, value in _facts(client.info()):
            table.add_row(name, value)
        out().print(table)


def _facts(info: ServerInfo) -> list[tuple[str, str]]:
    model, numerics = info.model, info.model.numerics
    return [
        ("model", model.name),
        ("numbers", f"{numerics.label}, {numerics.kernels}"),
        ("vocabulary", str(model.vocab_size)),
        ("context length", str(model.context_length)),
        ("tokenizer", model.tokenizer_fingerprint),
        ("methods", ", ".join(_method(name, info) for name in info.methods)),
        ("limits", f"depth {info.max_depth}, nodes {info.max_nodes}"),
        ("requests", f"{info.live_requests} now, {info.requests_total} in all"),
        ("version", info.version),
    ]


def _method(name: str, info: ServerInfo) -> str:
    depth, nodes = info.recommended_depths.get(name), info.recommended_nodes.get(name)
    if not depth:
        return name
    return f"{name} (depth {depth}, {nodes} nodes)" if nodes else f"{name} (depth {depth})"
