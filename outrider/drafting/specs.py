"""Which drafters there are by name, and what NAME[=PATH] may say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outrider.models.hub import DEFAULT

DRAFTERS = ("ngram", "draft_model", "eagle", "medusa", "lookahead")
"""In the order in which they are served; the first one serves requests that name none where there
is no `auto`."""

AUTO = "auto"
"""Chooses among the others; there wherever two of them are."""

NEED_PATH = frozenset({"draft_model"})
"""Without a path these come with the default target only."""

TRAINED = frozenset({"eagle", "medusa"})
"""Without a path these come where the target has a checkpoint of them."""

MODELS = NEED_PATH | TRAINED
"""Those that run a model of their own."""

CHECKPOINTS = tuple(Path(__file__).parents[up] / "checkpoints" for up in (1, 2))
"""Where the checkpoints are that were trained for the default target, a folder a method: in an
installed package, and in a source tree."""


class DrafterRefused(ValueError):
    """A drafter cannot be built as asked for; the message names both sides."""


def split_spec(spec: str) -> tuple[str, str | None]:
    """Name and path of NAME[=PATH].

    Raises:
        DrafterRefused: there is no such drafter, or the path is empty.
    """
    name, equals, path = spec.partition("=")
    known = (*DRAFTERS, AUTO)
    if name not in known:
        raise DrafterRefused(f"drafter {name!r} is unknown, limit one of {', '.join(known)}")
    if equals and not path:
        raise DrafterRefused(f"drafter {spec!r} has an empty path")
    return name, path or None


def check_distinct(specs: Sequence[str]) -> None:
    """Refuses a drafter that is unknown, or that comes twice.

    Raises:
        DrafterRefused: one of them is.
    """
    names = [split_spec(spec)[0] for spec in specs]
    if len(set(names)) != len(names):
        raise DrafterRefused(f"{', '.join(names)}: each may come once")


def default_checkpoint(method: str, target: str) -> Path | None:
    """The checkpoint of a method that comes with a target; None where none does."""
    if target != DEFAULT:
        return None
    folders = (place / method for place in CHECKPOINTS)
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def check_path(spec: str, target: str) -> None:
    """Refuses a drafter without the path that it needs with this target.

    Raises:
        DrafterRefused: the path is missing.
    """
    name, path = split_spec(spec)
    if path is None and not _comes_with(name, target):
        raise DrafterRefused(f"drafter {name} needs a path ({name}=PATH) for target {target}")


def default_specs(target: str) -> tuple[str, ...]:
    """Every drafter that can be had for a target without a path."""
    return tuple(name for name in DRAFTERS if _comes_with(name, target))


def _comes_with(name: str, target: str) -> bool:
    if name in TRAINED:
        return default_checkpoint(name, target) is not None
    return target == DEFAULT or name not in NEED_PATH
