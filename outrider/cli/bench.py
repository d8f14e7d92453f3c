"""`outrider bench`: methods against plain decoding, on the same prompts and in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from outrider.cli import provenance
from outrider.cli.checks import check_sampling
from outrider.cli.console import ending_well, err, out
from outrider.cli.door import Address, Ca, Door, Insecure, Token
from outrider.cli.measure import (
    PLAIN,
    Row,
    Setting,
    candidates,
    choose_methods,
    fastest,
    measure,
    some_of_each,
    summarise,
)
from outrider.cli.prompts import Prompt, read_prompts
from outrider.cli.up import Device, Drafters, Dtype, RedisUrl, Target
from outrider.client import Client
from outrider.files import replace_json
from outrider.requests import Options
from outrider.results import ServerInfo

TUNING_TOKENS = 64
"""Most tokens of a text while settings are tried."""


def bench(
    prompts: Annotated[
        Path,
        typer.Option(
            help="JSON lines: Spec-Bench's format (of several turns, the first), or with prompt."
        ),
    ],
    address: Address = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N prompts.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens a prompt.")] = 128,
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "plain,ngram,draft_model",
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Depth. Default: each drafter's own.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Most drafted nodes. Default: each drafter's own.")
    ] = None,
    tune: Annotated[
        int,
        typer.Option(
            min=0, help="First find each method's best K and nodes on N prompts of each category."
        ),
    ] = 0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Lines with prompt are user's messages.")
    ] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File for the result (JSON).")
    ] = None,
    token: Token = None,
    ca: Ca = None,
    insecure: Insecure = False,
    target: Target = "default",
    drafter: Drafters = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    redis_url: RedisUrl = None,
) -> None:
    """Measure methods against plain decoding; of a prompt with several turns, on the first."""
    options: Options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    with ending_well():
        check_sampling(options)
        chosen = read_prompts(prompts, limit, chat=chat)
        if out_file is not None and not out_file.parent.is_dir():
            raise ValueError(f"out: {out_file.parent} is not a folder")
        door = Door(address, token, ca, insecure, target, drafter or None, dtype, device, redis_url)
        with door.open() as client:
            info = client.info()
            names = choose_methods(
                [name.strip() for name in methods.split(",") if name.strip()], info.methods
            )
            settings = {name: _own(info, name, k, nodes) for name in names}
            if tune:
                few: Options = {**options, "max_tokens": min(max_tokens, TUNING_TOKENS)}
                tried = candidates(names)
                rows = _measure(client, some_of_each(chosen, tune), tried, few, "tuning")
                settings = fastest(tried, rows)
            rows = _measure(client, chosen, settings, options, "measuring")
        document = result(info, options, settings, rows)
        out().print(table(document["methods"]))
        if out_file is not None:
            replace_json(out_file, document, indent=2)


def _own(info: ServerInfo, method: str, k: int | None, nodes: int | None) -> Setting:
    if method == PLAIN:
        return Setting(PLAIN, 0)
    depth = k or recommended(info, method)
    return Setting(method, depth, nodes if nodes is None else max(nodes, depth))


def recommended(info: ServerInfo, method: str) -> int:
    """The depth that the drafter recommends.

    Raises:
        ValueError: the server tells none.
    """
    depth = info.recommended_depths.get(method)
    if not depth:
        raise ValueError(f"k: the server recommends no depth for {method}; give --k")
    return depth


def _measure(
    client: Client,
    prompts: Sequence[Prompt],
    settings: dict[str, Setting],
    options: Options,
    what: str,
) -> list[Row]:
    rows = []
    with Progress(console=err(), transient=True) as progress:
        task = progress.add_task(what, total=len(prompts) * len(settings))
        for row in measure(client, prompts, settings, options):
            rows.append(row)
            told = f"{what}: {row.method} {row.rate:.1f} tokens/s"
            progress.update(task, advance=1, description=told)
    return rows


def result(
    info: ServerInfo, options: Options, settings: dict[str, Setting], rows: Sequence[Row]
) -> dict[str, Any]:
    """The result file: `run`, `methods`, and the `rows` that the figures come from."""
    run = {
        "model": info.model.name,
        "dtype": info.model.numerics.label,
        "numerics": info.model.numerics.fingerprint,
        **provenance.facts(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": dict(options),
        "k": {name: setting.depth for name, setting in settings.items()},
        "nodes": {name: setting.nodes for name, setting in settings.items()},
    }
    return {"run": run, "methods": summarise(rows), "rows": [row.as_json() for row in rows]}


def table(methods: Sequence[dict[str, Any]]) -> Table:
    """The methods' figures for people."""
    made = Table("method", "tokens", "tokens/s", "speedup", "acc. rate", "acc. length", "identical")
    made.columns[0].no_wrap = True
    for row in methods:
        made.add_row(
            row["method"],
            str(row["tokens"]),
            _number(row["tokens_per_second"], 1),
            _number(row["speedup"], 2),
            _number(row["acceptance_rate"], 2),
            _number(row["acceptance_length"], 2),
            {True: "yes", False: "no", None: "-"}[row["identical_to_plain"]],
        )
    return made


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
