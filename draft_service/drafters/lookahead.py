"""Lookahead decoding as a drafter of this service."""

from __future__ import annotations

from draft_service.drafters.setup import Setup
from outrider.drafting.lookahead import LookaheadDrafter
from outrider.drafting.specs import DrafterRefused


def build(path: str | None, setup: Setup) -> LookaheadDrafter:
    """The drafter; its guesses come from the target itself.

    Raises:
        DrafterRefused: a path is given.
    """
    if path is not None:
        raise DrafterRefused(f"drafter lookahead takes no path, given {path!r}")
    return LookaheadDrafter()
