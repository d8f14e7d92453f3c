"""Prompt lookup as a drafter of this service."""

from __future__ import annotations

from draft_service.drafters.setup import Setup
from outrider.drafting.ngram import NgramDrafter
from outrider.drafting.specs import DrafterRefused


def build(path: str | None, setup: Setup) -> NgramDrafter:
    """The drafter; it has no model.

    Raises:
        DrafterRefused: a path is given.
    """
    if path is not None:
        raise DrafterRefused(f"drafter ngram takes no path, given {path!r}")
    return NgramDrafter(past_tokens=setup.ngram_past_tokens)
