"""`python -m target_service --listen HOST:PORT --model SPEC`."""

from __future__ import annotations

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

from outrider.models.attention import UnsupportedModelError
from outrider.models.causal_lm import CausalLM
from outrider.models.hub import ModelSpecError
from outrider.models.loading import load_model
from outrider.models.pool import BLOCK
from outrider.models.profile import PassTime, profile
from outrider.models.selfcheck import checked
from outrider.serving.server import serve
from outrider.serving.telemetry.logging import configure
from target_service.engine import Engine
from target_service.service import TargetService
from target_service.settings import TargetSettings

logger = logging.getLogger(__name__)

LEAST_TEXT = 64
"""Tokens that KV memory must hold beside a tree: less serves no text worth the name."""


def main() -> int:
    """Loads the model and serves it until SIGTERM; 1 where it cannot be served."""
    settings = TargetSettings.from_args(sys.argv[1:])
    configure(settings.log_level)
    # OpenMP keeps a team for each thread that computes, and two teams on the same cores make every
    # parallel loop wait; so the thread that computes later does everything before, too.
    with ThreadPoolExecutor(1, thread_name_prefix="engine") as thread:
        try:
            model, times = thread.submit(_prepared, settings).result()
        except (ModelSpecError, UnsupportedModelError, MemoryError) as error:
            logger.error("target service cannot serve: %s", error)
            return 1
        engine = Engine(model, settings.engine_limits, thread)
        return asyncio.run(_serve(engine, settings, times))


def _prepared(settings: TargetSettings) -> tuple[CausalLM, list[PassTime]]:
    model = load_model(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        threads=settings.threads,
        kv_bytes=settings.kv_cache_mib << 20,
    )
    tokens = model.pool.size * BLOCK
    if tokens < settings.max_nodes + LEAST_TEXT:
        raise ModelSpecError(
            f"kv_cache_mib: {settings.kv_cache_mib}, holds {tokens} tokens, "
            f"limit max_nodes {settings.max_nodes} and {LEAST_TEXT} more"
        )
    logger.info("checking its bits; what kernels this machine lacks are compiled, for minutes")
    model = checked(model)
    if not settings.profile:
        return model, []
    logger.info("measuring forward times")
    return model, profile(model)


async def _serve(engine: Engine, settings: TargetSettings, times: list[PassTime]) -> int:
    return await serve(settings, TargetService(engine, settings, times))


if __name__ == "__main__":
    sys.exit(main())
