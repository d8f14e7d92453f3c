"""What `--dtype auto` means on a processor: bfloat16 where it is exact and not slower.

The choice is measured once for each kind of machine and stored beside the model, so that every
replica that shares the model's files, and every restart, computes the same bits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.hub import home
from outrider.models.linear import packing_available
from outrider.models.selfcheck import self_check

logger = logging.getLogger(__name__)

PREFIX = "outrider-dtype-"
FLOAT32, BFLOAT16 = "float32", "bfloat16"
ROWS = (1, 6)
REPEATS = 7
CONTEXT = 64
NOISE = 1.03
"""A time that is greater by less than this counts as equal."""

Load = Callable[[str], CausalLM]


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why; milliseconds of passes of `ROWS` rows where they were measured."""

    dtype: str
    reason: str
    float32_ms: tuple[float, ...] = ()
    bfloat16_ms: tuple[float, ...] = ()


def machine() -> str:
    """What a choice holds for: processor features that decide which kernels run, and torch."""
    # The oldest torch does not tell.
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    features = [name for name, there in known.items() if there is True]
    chosen = sorted(f for f in features if f.startswith(("avx", "amx", "sve", "bf16")))
    level = torch.backends.cpu.get_cpu_capability()
    return f"{level} {' '.join(chosen)} torch={torch.__version__}"


def stored_choice(place: Path | str) -> Choice | None:
    """The choice that was made on this kind of machine for the model at `place`, or None.

    Args:
        place: a directory, or a hub id.
    """
    for file in _files(place):
        choice = _read(file)
        if choice is not None:
            return choice
    return None


def choose(place: Path | str, load: Load) -> CausalLM:
    """The model in the dtype that `auto` means on this machine, as stored; measured and stored
    where nothing is.

    Args:
        place: a directory, or a hub id.
        load: makes the model in a dtype.
    """
    choice = stored_choice(place)
    if choice is not None:
        logger.info("dtype auto is %s, as stored: %s", choice.dtype, choice.reason)
        return load(choice.dtype)
    if not packing_available(torch.bfloat16, torch.device("cpu")):
        logger.info("dtype auto is float32: this processor has no packed linears in bfloat16")
        return load(FLOAT32)
    logger.info("dtype auto: comparing bfloat16 with float32, once for this machine")
    half = load(BFLOAT16)
    found = self_check(half)
    if found is None:  # for lack of room here and now, which nobody else need share
        logger.info("dtype auto is float32: no room for the self-check")
        return load(FLOAT32)
    if not found.exact:
        choice, chosen = Choice(FLOAT32, f"bfloat16 is {found}"), None
    else:
        whole = load(FLOAT32)
        choice = compare(whole, half)
        chosen = half if choice.dtype == BFLOAT16 else whole
    logger.info("dtype auto is %s: %s", choice.dtype, choice.reason)
    kept = store(place, choice)
    if chosen is None or kept.dtype != choice.dtype:
        return load(kept.dtype)
    return chosen


def compare(whole: CausalLM, half: CausalLM) -> Choice:
    """Which of an exact bfloat16 and a float32 model to take, by interleaved medians of passes."""
    times: dict[tuple[str, int], list[float]] = {}
    for repeat in range(REPEATS + 1):
        for name, lm in ((FLOAT32, whole), (BFLOAT16, half)):
            for rows in ROWS:
                taken = _pass_ms(lm, rows)
                if repeat:  # the first one makes kernels
                    times.setdefault((name, rows), []).append(taken)
    slow, fast = (
        tuple(round(statistics.median(times[name, rows]), 3) for rows in ROWS)
        for name in (FLOAT32, BFLOAT16)
    )
    said = ", ".join(
        f"{rows} rows {b:g} ms in bfloat16, {a:g} in float32"
        for rows, a, b in zip(ROWS, slow, fast, strict=True)
    )
    better = all(b <= a * NOISE for a, b in zip(slow, fast, strict=True))
    name, word = (BFLOAT16, "exact and not slower") if better else (FLOAT32, "bfloat16 is slower")
    return Choice(name, f"{word}: {said}", slow, fast)


def store(place: Path | str, choice: Choice) -> Choice:
    """Stores a choice beside the model, or in the cache where its directory is not to be written.

    Returns the one that holds: an earlier one where another process stored its own meanwhile.
    """
    for file in _files(place):
        try:
            return _store(file, choice)
        except OSError as error:
            logger.info("dtype auto: %s cannot be written: %s", file, error)
    logger.warning("dtype auto: the choice of %s is not stored; name a dtype", choice.dtype)
    return choice


def _pass_ms(lm: CausalLM, rows: int) -> float:
    cache = lm.new_cache()
    try:
        cache.reserve(CONTEXT)
        cache.length = min(CONTEXT, lm.context_length - rows)
        started = time.perf_counter()
        lm.logits(lm.forward([Segment.chain(cache, [0] * rows)]).states)
        return (time.perf_counter() - started) * 1e3
    finally:
        cache.free()


def _files(place: Path | str) -> list[Path]:
    """Where the choice of this kind of machine may stand: beside the model, then in the cache.

    The names follow from the machine and the configuration, since a choice depends on a model's
    shapes; so no two kinds of machines ever write to one file.
    """
    if isinstance(place, str):
        name, config = place, b""
    else:
        name, config = str(place.resolve()), (place / "config.json").read_bytes()
    key = _digest(machine().encode() + config)
    apart = home() / "dtypes" / f"{_digest(name.encode())}-{key}.json"
    return [apart] if isinstance(place, str) else [place / f"{PREFIX}{key}.json", apart]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _read(file: Path) -> Choice | None:
    """None where there is no readable choice."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        choice = Choice(found["dtype"], found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return choice if choice.dtype in (FLOAT32, BFLOAT16) else None


def _store(file: Path, choice: Choice) -> Choice:
    if not file.name.startswith(PREFIX):
        file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    made = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as content:
            json.dump({**asdict(choice), "machine": machine()}, content, indent=2)
        made.chmod(0o644)
        try:
            file.hardlink_to(made)  # all of it or nothing, and never over another's
        except FileExistsError:
            earlier = _read(file)
            if earlier is not None:
                return earlier
            made.replace(file)
        return choice
    finally:
        made.unlink(missing_ok=True)
