"""The drafters that this service knows by name. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from draft_service.drafters.setup import DrafterRefused, Setup
from outrider.drafting.base import Drafter

Factory = Callable[[str | None, Setup], Drafter]

# name -> module with `build(path, setup)`; imported when asked for, since some bring torch.
DRAFTERS = {
    "ngram": "draft_service.drafters.ngram",
    "draft_model": "draft_service.drafters.draft_model",
}

# Without a path these come with the default target only.
NEED_PATH = frozenset({"draft_model"})


def split_spec(spec: str) -> tuple[str, str | None]:
    """Name and path of NAME[=PATH].

    Raises:
        DrafterRefused: there is no such drafter, or the path is empty.
    """
    name, equals, path = spec.partition("=")
    if name not in DRAFTERS:
        raise DrafterRefused(f"drafter {name!r} is unknown, limit one of {', '.join(DRAFTERS)}")
    if equals and not path:
        raise DrafterRefused(f"drafter {spec!r} has an empty path")
    return name, path or None


def build_drafter(spec: str, setup: Setup) -> Drafter:
    """The drafter of NAME[=PATH], its model loaded.

    Raises:
        DrafterRefused: it is unknown, or does not fit the target.
    """
    name, path = split_spec(spec)
    factory = cast(Factory, import_module(DRAFTERS[name]).build)
    return factory(path, setup)
