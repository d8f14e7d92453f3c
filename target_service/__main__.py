"""`python -m target_service --listen HOST:PORT --model SPEC`."""

from __future__ import annotations

import asyncio
import sys

from outrider.models.causal_lm import CausalLM
from outrider.models.loading import load_model
from outrider.serving.server import serve
from target_service.engine import Engine
from target_service.service import TargetService
from target_service.settings import TargetSettings


def main() -> int:
    """Loads the model and serves it until SIGTERM."""
    settings = TargetSettings.from_args(sys.argv[1:])
    model = load_model(
        settings.model, dtype=settings.dtype, device=settings.device, threads=settings.threads
    )
    return asyncio.run(_serve(model, settings))


async def _serve(model: CausalLM, settings: TargetSettings) -> int:
    return await serve(settings, TargetService(Engine(model, settings.engine_limits), settings))


if __name__ == "__main__":
    sys.exit(main())
