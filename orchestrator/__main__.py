"""`python -m orchestrator --listen HOST:PORT --target ADDRESS --draft ADDRESS --tokenizer SPEC`."""

from __future__ import annotations

import asyncio
import logging
import sys

from orchestrator.service import OrchestratorService
from orchestrator.settings import OrchestratorSettings
from outrider.models.hub import ModelSpecError
from outrider.models.loading import load_tokenizer
from outrider.serving.server import serve
from outrider.serving.telemetry.logging import configure

logger = logging.getLogger(__name__)


def main() -> int:
    """Serves until SIGTERM."""
    settings = OrchestratorSettings.from_args(sys.argv[1:])
    configure(settings.log_level)
    try:
        tokenizer = load_tokenizer(settings.tokenizer)
    except ModelSpecError as error:
        logger.error("orchestrator cannot serve: tokenizer: %s", error)
        return 1
    return asyncio.run(_serve(tokenizer, settings))


async def _serve(tokenizer: object, settings: OrchestratorSettings) -> int:
    return await serve(settings, OrchestratorService(tokenizer, settings))


if __name__ == "__main__":
    sys.exit(main())
