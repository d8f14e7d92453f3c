"""The `outrider` command."""

from __future__ import annotations

import typer

from outrider.cli.bench import bench
from outrider.cli.generate import generate
from outrider.cli.info import info
from outrider.cli.models import app as models
from outrider.cli.plan import plan
from outrider.cli.train import app as train
from outrider.cli.up import up

app = typer.Typer(
    name="outrider",
    help="Lossless speculative decoding as a distributed service.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(generate)
app.command()(info)
app.command()(bench)
app.command()(plan)
app.add_typer(models, name="models")
app.add_typer(train, name="train")

if __name__ == "__main__":
    app()
