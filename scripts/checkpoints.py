"""Puts the best checkpoint of a training into `checkpoints/`, and writes the model cards there.

    python scripts/checkpoints.py ship RUN ...      # folders of trainings
    python scripts/checkpoints.py cards [--check]   # from stored figures; --check only compares

A card's figures come from the training's own report, kept beside the checkpoint as training.json,
and from benchmarks/results/acceptance.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKPOINTS = ROOT / "checkpoints"
ACCEPTANCE = ROOT / "benchmarks" / "results" / "acceptance.json"
KEPT = ("method", "options", "shape", "draft_vocab_size", "sequences", "tokens", "best", "coverage")
NAMES = {
    "eagle": "EAGLE-3 head: one decoder layer on three layers' states of the target",
    "draft_model": "Draft model: three of the target's layers, trained further",
    "medusa": "Medusa heads on the target's final state and the root of their tree",
}
OPEN = "`outrider train export` writes the open form for other software."
NOT_OPEN = "Other software's form of Medusa heads has no place for what reads the root."
CARD = """---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---
# {title}

Drafts for SmolLM2-135M-Instruct in Outrider (`--drafter {method}`, which takes it by itself). The
files hold trained tensors in bfloat16 and the id map; embedding, LM head and what else is the
target's own is put in at load. {form}

**Data.** [What the target wrote itself](../data/README.md): {sequences:,} texts, {tokens:,} tokens
with their prompts. Nothing of what drafters are measured on is among them.

**Recipe.** `outrider train {method}`, {minutes:.0f} minutes on {cores} cores, {precision} products,
{loss_tokens:,} tokens seen: soft cross entropy against the target's own probabilities over {rows:,}
draft tokens, which cover {covered:.1f} % of held-out text; {details}.

**Measured** on held-out texts of the same prompt files: first token {first:.3f}, chain of four
{chain:.2f} tokens a pass, best tree of twelve {tree:.2f}. On other prompts, 60 of Spec-Bench in
real services:

{table}

It fits no other target: a checkpoint names the hashes of the weights that it was trained for, and
is refused elsewhere.
"""


def ship(run: Path) -> Path:
    """Copies the best checkpoint of a run; returns its new folder.

    A run that began with a checkpoint is taken to have begun with the one that is there now, whose
    trainings are kept as earlier ones.
    """
    document = json.loads((run / "report.json").read_text())
    history = json.loads((run / "history.json").read_text())
    folder = CHECKPOINTS / document["method"]
    earlier = _trainings(folder) if document["start"] else []
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run / history["best"], folder)
    kept = {name: document.get(name) for name in KEPT}
    kept["made_with"] = {
        name: document["made_with"][name] for name in ("versions", "commit", "machine")
    }
    kept["earlier"] = earlier
    (folder / "training.json").write_text(json.dumps(kept, indent=1) + "\n")
    return folder


def _trainings(folder: Path) -> list[dict[str, float]]:
    """All trainings of a shipped checkpoint, the last one at the end."""
    made = json.loads((folder / "training.json").read_text())
    best = made["best"]
    last = {"seconds": best["seconds"], "loss_tokens": best["loss_tokens"]}
    return [*made.get("earlier", []), {**last, "lr": made["options"]["lr"]}]


def card(method: str) -> str:
    """The card of a method's checkpoint."""
    made = json.loads((CHECKPOINTS / method / "training.json").read_text())
    best, options = made["best"], made["options"]
    trainings = _trainings(CHECKPOINTS / method)
    rates = ", then ".join(f"{each['lr']:g}" for each in trainings)
    details = [f"learning rate {rates}", f"batches of {options['rows']:,} tokens"]
    details += [f"{name} {value}" for name, value in made["shape"].items() if value is not None]
    return CARD.format(
        title=NAMES[method],
        method=method,
        form=NOT_OPEN if made["shape"].get("root_embedding") else OPEN,
        sequences=made["sequences"],
        tokens=made["tokens"],
        minutes=sum(each["seconds"] for each in trainings) / 60,
        cores=made["made_with"]["machine"]["cores"],
        precision=options["precision"],
        loss_tokens=sum(each["loss_tokens"] for each in trainings),
        rows=made["draft_vocab_size"],
        covered=100 * made["coverage"]["all"],
        details=", ".join(details),
        first=best["first"],
        chain=best["chain"]["4"],
        tree=best["tree"]["12"],
        table=table(method),
    )


def table(method: str) -> str:
    """What the services accepted of it."""
    lines = [
        "| temperature | depth | nodes | first token | tokens a pass |",
        "|---|---|---|---|---|",
    ]
    for row in json.loads(ACCEPTANCE.read_text())["rows"]:
        if row["method"] == method:
            lines.append(
                f"| {row['temperature']:g} | {row['depth']} | {row['nodes']} "
                f"| {row['first']:.3f} | {row['tokens_per_pass']:.2f} |"
            )
    return "\n".join(lines) if len(lines) > 2 else "Not measured yet."


def main(arguments: Sequence[str]) -> int:
    """1 where `cards --check` finds one out of date."""
    command, *rest = arguments or ("cards",)
    if command == "ship":
        for run in rest:
            print(ship(Path(run)))  # noqa: T201
        return 0
    stale = 0
    for method in NAMES:
        path = CHECKPOINTS / method / "README.md"
        if not path.parent.is_dir():
            continue
        wanted = card(method)
        if "--check" in rest:
            stale += not path.exists() or path.read_text() != wanted
        else:
            path.write_text(wanted)
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
