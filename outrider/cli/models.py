"""`outrider models`: fetch, list, inspect and cut models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import progress as bars
from rich.table import Column, Table

from outrider.cli.console import ending_well, err, out
from outrider.models import hub

app = typer.Typer(name="models", help="Fetch, list, inspect and cut models.", no_args_is_help=True)

_SPEC_HELP = "default, a Hugging Face directory, a GGUF file or a hub id"


@contextmanager
def _progress() -> Iterator[hub.Progress]:
    """A bar for each stage, on standard error."""
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=err()) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def show(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    shown.stop_task(task)
                tasks[stage] = shown.add_task(stage, total=total)
            shown.update(tasks[stage], completed=done)

        yield show


@app.command()
def fetch(
    spec: Annotated[str, typer.Argument(metavar="[SPEC]", help=_SPEC_HELP)] = hub.DEFAULT,
) -> None:
    """Fetches a model and converts it where needed; prints where it is."""
    with ending_well():
        with _progress() as show:
            place = hub.resolve(spec, show)
        if isinstance(place, str):
            from outrider.models.inspection import fetch_from_hub  # heavy

            place = fetch_from_hub(place)
        out().print(str(place))


@app.command("list")
def list_models() -> None:
    """Lists the models in the cache."""
    from outrider.models.inspection import inspect_model  # heavy

    with ending_well():
        found = hub.cached_models()
        if not found:
            err().print(
                f"no models in {hub.models_folder()}; "
                "`outrider models fetch` gets the default target"
            )
            return
        table = Table("family", "layers", "parameters", "size", Column("path", overflow="fold"))
        for path in found:
            facts = inspect_model(str(path))
            table.add_row(
                facts.family,
                str(facts.layers),
                _millions(facts.parameters),
                _megabytes(facts.size_bytes),
                str(path),
            )
        out().print(table)


@app.command()
def inspect(
    spec: Annotated[str, typer.Argument(help=_SPEC_HELP)],
    int8_loss: Annotated[
        bool,
        typer.Option(
            "--int8-loss",
            help="Load it and measure what int8 and bfloat16 cost on a text of 600 words.",
        ),
    ] = False,
) -> None:
    """Shows what is known of a model; its weights are loaded for --int8-loss alone."""
    from outrider.models.inspection import inspect_model  # heavy

    with ending_well():
        facts = inspect_model(spec)
        table = Table(Column(), Column(overflow="fold"), show_header=False)
        for name, value in (
            ("name", facts.name),
            ("path", facts.path),
            ("family", facts.family),
            ("parameters", _millions(facts.parameters)),
            ("size", _megabytes(facts.size_bytes)),
            ("stored as", ", ".join(facts.dtypes)),
            ("layers", facts.layers),
            ("hidden size", facts.hidden_size),
            ("heads", f"{facts.heads} query, {facts.key_value_heads} key-value"),
            ("vocabulary", facts.vocab_size),
            ("context length", facts.context_length),
            ("end of text ids", ", ".join(map(str, facts.eos_ids))),
            ("chat template", "yes" if facts.chat_template else "no"),
            ("tokenizer", facts.tokenizer_fingerprint),
            ("decoder on a CPU", f"{facts.decoder}: {facts.decoder_reason}"),
        ):
            table.add_row(name, str(value))
        out().print(table)
        if int8_loss:
            out().print(_losses(spec))


def _losses(spec: str) -> Table:
    from outrider.models.loss import losses  # heavy

    with _progress() as show:
        found = losses(spec, show)
    table = Table("dtype", "mean loss, nats", "above float32")
    for dtype, loss in found.items():
        difference = f"{loss - found['float32']:+.4f}" if dtype != "float32" else ""
        table.add_row(dtype, f"{loss:.4f}", difference)
    return table


@app.command()
def cut(
    layers: Annotated[int, typer.Option(help="First layers that stay.")] = hub.DRAFT_LAYERS,
    target: Annotated[str, typer.Option(help=_SPEC_HELP)] = hub.DEFAULT,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory; default: in the cache.")
    ] = None,
) -> None:
    """Makes a draft model of a target's first layers; prints where it is."""
    with ending_well():
        if layers < 1:
            raise ValueError(f"layers: {layers}, limit at least 1")
        if out_dir is not None:
            _check_empty(out_dir)
        with _progress() as show:
            place = hub.resolve(target, show)
            show("cutting", 0, 1)
            from outrider.models.cut import cut_model  # heavy

            if out_dir is None:
                made = hub.build_once(
                    hub.cut_name(place, layers),
                    lambda folder: cut_model(str(place), layers, folder),
                )
            else:
                cut_model(str(place), layers, out_dir)
                made = out_dir
            show("cutting", 1, 1)
        out().print(str(made))


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"out: {folder} exists and is not an empty directory")


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
