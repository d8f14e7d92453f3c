"""How each of the drafters that `outrider.drafting.specs` names is built.

A new one is a file here and a name there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.setup import Setup
from outrider.drafting.base import Drafter
from outrider.drafting.specs import AUTO, DrafterRefused, split_spec

Factory = Callable[[str | None, Setup], Drafter]


def build_drafters(specs: Sequence[str], setup: Setup) -> list[Drafter]:
    """The drafters asked for, and `auto` behind them: where it is named, or two others are.

    Over a single drafter it would only be another name for it, so it has to be asked for.

    Raises:
        DrafterRefused: one of them is, or auto has nothing to choose from, or a path.
    """
    paths = dict(map(split_spec, specs))
    drafters = [build_drafter(spec, setup) for spec in specs if split_spec(spec)[0] != AUTO]
    if AUTO in paths and (paths[AUTO] is not None or not drafters):
        raise DrafterRefused(
            f"drafter auto takes no path and at least one other drafter; given {', '.join(specs)}"
        )
    if AUTO in paths or len(drafters) > 1:
        drafters.append(AutoDrafter(drafters))
    return drafters


def build_drafter(spec: str, setup: Setup) -> Drafter:
    """The drafter of NAME[=PATH], its model loaded.

    Raises:
        DrafterRefused: it is unknown, or does not fit the target.
    """
    name, path = split_spec(spec)
    # Imported when asked for, since some bring torch.
    factory = cast(Factory, import_module(f"draft_service.drafters.{name}").build)
    return factory(path, setup)
