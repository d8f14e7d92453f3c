"""Options that the commands of the load test share."""

from __future__ import annotations

from typing import Annotated

import typer

Method = Annotated[str, typer.Option(help="drafter; the server's first one without it")]
Target = Annotated[str, typer.Option(help="model of own clusters")]
Drafters = Annotated[
    list[str] | None, typer.Option("--drafter", help="NAME or NAME=PATH, of own clusters")
]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or int8")]
Device = Annotated[str, typer.Option(help="cpu or cuda:N")]
Fresh = Annotated[bool, typer.Option("--fresh", help="forget runs that are stored")]
