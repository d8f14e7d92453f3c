"""How each of the drafters that `outrider.drafting.specs` names is built.

A new one is a file here and a name there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from draft_service.drafters.setup import Setup
from outrider.drafting.base import Drafter
from outrider.drafting.specs import split_spec

Factory = Callable[[str | None, Setup], Drafter]


def build_drafter(spec: str, setup: Setup) -> Drafter:
    """The drafter of NAME[=PATH], its model loaded.

    Raises:
        DrafterRefused: it is unknown, or does not fit the target.
    """
    name, path = split_spec(spec)
    # Imported when asked for, since some bring torch.
    factory = cast(Factory, import_module(f"draft_service.drafters.{name}").build)
    return factory(path, setup)
