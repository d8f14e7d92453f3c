"""`outrider up`: a whole cluster on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.cluster import Cluster
from outrider.cli.console import ending_well, err, out

WATCH_S = 0.2

Target = Annotated[str, typer.Option(help="Hugging Face directory, hub id, GGUF file, or default.")]
Drafters = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help="NAME or NAME=PATH; may be repeated. Default: all that the target has without a path.",
    ),
]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or int8.")]
Device = Annotated[str, typer.Option(help="cpu or cuda:N.")]
RedisUrl = Annotated[
    str | None, typer.Option(help="Use this server. Default: start an embedded one.")
]


def up(
    target: Target = "default",
    drafter: Drafters = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the gRPC door; 0 is a free one.")
    ] = 50050,
    redis_url: RedisUrl = None,
    logs: Annotated[Path | None, typer.Option(help="Folder for a log file per service.")] = None,
) -> None:
    """Start target, draft and orchestrator on this machine, and serve until Ctrl-C."""
    say = err().print
    cluster = Cluster(target, drafter or None, dtype, device, redis_url, port, logs=logs, say=say)
    with ending_well(interrupted_status=0), cluster:
        out().print(f"ready grpc={cluster.address}")
        while True:
            cluster.check()
            time.sleep(WATCH_S)
