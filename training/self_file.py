"""A file of prompts that the target writes itself, block by block."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrider.files import replace_json, replace_text
from training.files import TrainingError, read_json
from training.magpie import SelfPrompts, opening_of, self_prompts
from training.target import TrainingTarget

BLOCK = 256
"""Tries between two writings: what a kill may cost."""


def write_self_prompts(
    target: TrainingTarget,
    path: Path,
    tries: int,
    recipe: SelfPrompts,
    show: Callable[[str, float, float, str], None] = lambda stage, done, total, note: None,
) -> int:
    """Fills `path` until `tries` prompts were begun; goes on with what it has. How many it has.

    Raises:
        TrainingError: the file was begun with another recipe or target.
    """
    state = path.with_name(f"{path.name}.state")
    about: dict[str, Any] = {"recipe": asdict(recipe), "target": asdict(target.facts)}
    done = 0
    lines: list[str] = []
    if state.exists():
        stored = read_json(state)
        for name in about:
            if stored[name] != about[name]:
                raise TrainingError(f"{state}: {name} is {stored[name]}, wanted {about[name]}")
        done = int(stored["tries"])
        # The state is written last: lines behind its number are of a block that was cut short.
        lines = path.read_text().splitlines()[: int(stored["lines"])]
    if done < tries:
        opening, _ = opening_of(target.tokenizer)
        lm = target.engine(recipe.slots * (len(opening) + recipe.max_tokens + 128))
        show("prompts", done, tries, f"{len(lines)} kept")
    while done < tries:
        count = min(BLOCK, tries - done)
        before = done

        def heard(one: int) -> None:
            nonlocal before
            before += one
            show("prompts", before, tries, f"{len(lines)} kept")

        for _, prompt in self_prompts(lm, target.tokenizer, recipe, count, done, heard):
            line = json.dumps(prompt.to_json())
            if line not in lines:
                lines.append(line)
        done += count
        replace_text(path, "".join(f"{line}\n" for line in lines))
        replace_json(state, {**about, "tries": done, "lines": len(lines)})
    return len(lines)
