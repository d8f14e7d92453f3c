"""`outrider train`: a target's own texts, and drafters trained on them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from outrider.cli import provenance
from outrider.cli.bars import staged
from outrider.cli.console import ending_well, out
from outrider.cli.train_drafters import add_drafters
from outrider.cli.train_options import (
    Data,
    Device,
    Dtype,
    Features,
    Rows,
    Seed,
    Target,
    Threads,
    numbers,
    target_of,
)

app = typer.Typer(
    name="train",
    help="Make data with a target, and train drafters on it. Every command goes on where it was "
    "stopped.",
    no_args_is_help=True,
)
add_drafters(app)

_PROMPTS_HELP = "FILE, FILE:FIELD or FILE:FIELD:FIRST-LAST; JSON lines, a JSON list or lines."


@app.command()
def prompts(
    out_file: Annotated[Path, typer.Option("--out", help="Prompt file (JSON lines).")],
    tries: Annotated[int, typer.Option(min=1, help="Prompts to begin, in all.")] = 3000,
    slots: Annotated[int, typer.Option(min=1, help="Texts at once.")] = 64,
    seed: Seed = 0,
    target: Target = "default",
    dtype: Dtype = "auto",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Lets the target write prompts: it continues the opening of a user's turn."""
    with ending_well():
        from training.magpie import SelfPrompts
        from training.self_file import write_self_prompts

        with staged() as show:
            made = target_of(target, device, threads, show, dtype)
            kept = write_self_prompts(
                made, out_file, tries, SelfPrompts(seed=seed, slots=slots), show
            )
        out().print(f"{out_file}: {kept} prompts")


@app.command()
def tasks(
    data: Data,
    out_file: Annotated[Path, typer.Option("--out", help="Prompt file (JSON lines).")],
    given: Annotated[
        list[str] | None,
        typer.Option("--prompts", help=f"Those that the data answers. {_PROMPTS_HELP}"),
    ] = None,
    seed: Seed = 0,
    target: Target = "default",
) -> None:
    """Makes prompts for translations, summaries, questions and second turns of the target's texts.

    Without --prompts there are no second turns. A second call, after the translations were made,
    also has them translated back.
    """
    with ending_well():
        from outrider.files import replace_text
        from training.data import own_texts
        from training.prepare import records_of
        from training.prompts import read_source
        from training.tasks import task_prompts

        known = [prompt for spec in given or () for prompt in read_source(spec).prompts]
        tokenizer = target_of(target, "cpu", None).tokenizer
        texts = own_texts(records_of(data), known, tokenizer)
        lines = [json.dumps(prompt.to_json()) for prompt in task_prompts(texts, seed)]
        replace_text(out_file, "\n".join(lines) + "\n")
        out().print(f"{out_file}: {len(lines)} prompts")


@app.command("data")
def make(
    data: Data,
    given: Annotated[list[str], typer.Option("--prompts", help=_PROMPTS_HELP)],
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Stop at so many response tokens.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a response.")] = 256,
    max_prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 700,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of the sampled half.")] = 0.8,
    greedy_share: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
    slots: Annotated[int, typer.Option(min=1, help="Texts at once.")] = 64,
    seed: Seed = 0,
    target: Target = "default",
    dtype: Dtype = "auto",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Lets the target answer prompts, many at once, and stores the token ids."""
    with ending_well():
        from training.data import Counts, make_data
        from training.generate import Recipe
        from training.prompts import read_source

        sources = [read_source(spec) for spec in given]
        recipe = Recipe(seed, slots, max_tokens, temperature, greedy_share)
        with staged() as show:
            made = target_of(target, device, threads, show, dtype)
            began: list[float] = []

            def tell(counts: Counts, prompts: int) -> None:
                began[:] = began or [time.monotonic(), counts.tokens]
                rate = (counts.tokens - began[1]) / max(1e-9, time.monotonic() - began[0])
                note = f"{counts.tokens:,} tokens, {rate:.0f} a second"
                if tokens is None:
                    show("texts", counts.sequences, prompts, note)
                else:
                    show("tokens", counts.tokens, tokens, note)

            counts = make_data(
                made,
                sources,
                data,
                recipe,
                most_tokens=tokens,
                longest_prompt=max_prompt,
                commit=provenance.commit(),
                tell=tell,
            )
        ends = ", ".join(f"{count} {end}" for end, count in sorted(counts.ends.items()))
        out().print(f"{data}: {counts.sequences} texts, {counts.tokens} tokens; ended by {ends}")


@app.command()
def vocabulary(
    data: Data,
    rows: Rows = 16384,
    target: Target = "default",
) -> None:
    """Chooses the draft vocabulary and shows how much of held-out text it covers."""
    with ending_well():
        from training.prepare import Preparation, records_of, vocabulary_of
        from training.records import split
        from training.vocabulary import coverage

        records = records_of(data)
        made = target_of(target, "cpu", None)
        chosen = vocabulary_of(Preparation(data, draft_vocab_size=rows), made, records)
        train, held_out = split(records)
        seen, unseen = coverage(train, chosen), coverage(held_out, chosen)
        table = Table("prompts", "held out", "trained on")
        for name in sorted(seen, key=lambda name: (name != "all", name)):
            table.add_row(name, _percent(unseen.get(name)), _percent(seen[name]))
        out().print(table)


@app.command()
def features(
    data: Data,
    taps: Annotated[
        str | None, typer.Option(help="Layers, separated by commas. Default: EAGLE's.")
    ] = None,
    folder: Features = None,
    stored: Annotated[
        str, typer.Option("--feature-dtype", help="Of the files: float16 or bfloat16.")
    ] = "float16",
    target: Target = "default",
    dtype: Dtype = "auto",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Computes the target's states of all texts; training does it where they are missing."""
    with ending_well():
        from outrider.models.heads.config import default_taps
        from training.prepare import Preparation, features_of, records_of

        with staged() as stages:
            made = target_of(target, device, threads, stages, dtype)
            chosen = default_taps(made.facts.layers) if taps is None else numbers("taps", taps)
            preparation = Preparation(data, folder, feature_dtype=stored)
            cache = features_of(preparation, made, records_of(data), chosen, stages)
        out().print(f"{cache.folder}: taps {', '.join(map(str, cache.plan.taps))}")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a training.")],
) -> None:
    """Writes report.json and, with matplotlib, curves.png; prints what was measured."""
    with ending_well():
        from training.report import report as report_of
        from training.report import write_report

        document = report_of(run)
        path, curves = write_report(run, document)
        table = Table("minutes", "step", "first", "chain 4", "tree 8", "tree 12", "sum min(p, q)")
        for entry in document["history"]:
            chain = entry["chain"]
            best = chain.get("4", chain[max(chain)])
            figures = entry["first"], best, entry["tree"]["8"], entry["tree"]["12"]
            minutes, overlap = f"{entry['seconds'] / 60:.1f}", entry["overlap"][0]
            shown = [f"{figure:.3f}" for figure in (*figures, overlap)]
            table.add_row(minutes, str(entry["step"]), *shown)
        out().print(table)
        out().print(str(path))
        out().print(str(curves) if curves else "no curves: pip install 'outrider[plot]'")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a training, or of a checkpoint.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Empty folder.")],
    target: Target = "default",
) -> None:
    """Writes a checkpoint as other software reads it: Hugging Face, speculators or Medusa."""
    with ending_well():
        from training.export import best_of
        from training.export import export as export_to

        with staged() as stages:
            made = target_of(target, "cpu", None, stages)
            method = export_to(best_of(run), made, out_dir)
        out().print(f"{out_dir}: {method}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
