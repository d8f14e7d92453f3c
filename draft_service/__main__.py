"""`python -m draft_service --listen HOST:PORT --drafter NAME[=PATH] --target SPEC`."""

from __future__ import annotations

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

from draft_service.drafters.registry import build_drafters
from draft_service.drafters.setup import Setup, Vocabulary
from draft_service.engine import DraftEngine
from draft_service.service import DraftService
from draft_service.settings import DraftSettings
from draft_service.vocabulary import vocabulary_of
from outrider.drafting.base import Drafter
from outrider.drafting.specs import DrafterRefused
from outrider.models.attention import UnsupportedModelError
from outrider.models.hub import ModelSpecError
from outrider.serving.server import serve
from outrider.serving.telemetry.logging import configure

logger = logging.getLogger(__name__)


def main() -> int:
    """Builds the drafters and serves them until SIGTERM; 1 where one of them is refused."""
    settings = DraftSettings.from_args(sys.argv[1:])
    configure(settings.log_level)
    # One thread computes, from the beginning: a second team of OpenMP's would slow the first.
    with ThreadPoolExecutor(1, thread_name_prefix="draft") as thread:
        try:
            vocabulary, drafters = thread.submit(_prepared, settings).result()
        except (DrafterRefused, ModelSpecError, UnsupportedModelError) as error:
            logger.error("draft service cannot serve: %s", error)
            return 1
        engine = DraftEngine(
            {drafter.method: drafter for drafter in drafters}, settings.limits, thread
        )
        return asyncio.run(serve(settings, DraftService(engine, vocabulary)))


def _prepared(settings: DraftSettings) -> tuple[Vocabulary, list[Drafter]]:
    vocabulary = vocabulary_of(settings.target)
    setup = Setup(
        settings.target,
        vocabulary,
        settings.dtype,
        settings.device,
        settings.threads,
        settings.ngram_past_tokens,
    )
    return vocabulary, build_drafters(settings.drafter_specs, setup)


if __name__ == "__main__":
    sys.exit(main())
