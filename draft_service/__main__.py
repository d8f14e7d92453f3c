"""`python -m draft_service --listen HOST:PORT --drafter NAME[=PATH] --target SPEC`."""

from __future__ import annotations

import asyncio
import logging
import sys

from draft_service.drafters.registry import build_drafter
from draft_service.drafters.setup import DrafterRefused, Setup
from draft_service.engine import DraftEngine
from draft_service.service import DraftService
from draft_service.settings import DraftSettings
from draft_service.vocabulary import vocabulary_of
from outrider.serving.server import serve
from outrider.serving.telemetry.logging import configure

logger = logging.getLogger(__name__)


def main() -> int:
    """Builds the drafters and serves them until SIGTERM; 1 where one of them is refused."""
    settings = DraftSettings.from_args(sys.argv[1:])
    configure(settings.log_level)
    setup = Setup(
        target=settings.target,
        vocabulary=vocabulary_of(settings.target),
        dtype=settings.dtype,
        device=settings.device,
        threads=settings.threads,
    )
    try:
        drafters = [build_drafter(spec, setup) for spec in settings.drafter_specs]
    except DrafterRefused as error:
        logger.error("draft service cannot serve: %s", error)
        return 1
    return asyncio.run(_serve(DraftEngine({d.method: d for d in drafters}, settings.limits), setup, settings))


async def _serve(engine: DraftEngine, setup: Setup, settings: DraftSettings) -> int:
    return await serve(settings, DraftService(engine, setup.vocabulary))


if __name__ == "__main__":
    sys.exit(main())
