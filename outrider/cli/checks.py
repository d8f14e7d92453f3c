"""What services would refuse of flags and options, found before any of them is started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from outrider.drafting.specs import check_distinct, check_path, split_spec
from outrider.models.hub import DEFAULT, locate
from outrider.requests import Options

SAMPLING = {
    "temperature": (0, math.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "top_k": (0, 2**32 - 1),
    "seed": (0, 2**64 - 1),
}


def check_sampling(options: Options) -> None:
    """Refuses what no server would take.

    Raises:
        ValueError: naming the option, its value and the limit.
    """
    for name, (low, high) in SAMPLING.items():
        value: Any = options.get(name)
        if value is not None and not low <= value <= high:
            limit = f"at least {low}" if high == math.inf else f"{low} to {high}"
            raise ValueError(f"--{name.replace('_', '-')}: {value}, limit {limit}")


def check_flags(target: str, drafters: Sequence[str], dtype: str, device: str) -> None:
    """Refuses what a service would refuse after seconds of loading, in the same words.

    Raises:
        ValueError: naming the flag, its value and the limit.
    """
    from pydantic import TypeAdapter, ValidationError

    from outrider.serving.settings import Device, Dtype, problems

    check_distinct(drafters)
    for drafter in drafters:
        check_path(drafter, target)
    for spec in (target, *(split_spec(drafter)[1] for drafter in drafters)):
        if spec is not None and spec != DEFAULT:
            locate(spec)
    limits: tuple[tuple[str, Any, str], ...] = (
        ("dtype", Dtype, dtype),
        ("device", Device, device),
    )
    for name, limit, value in limits:
        try:
            TypeAdapter(limit).validate_python(value)
        except ValidationError as error:
            raise ValueError("; ".join(problems(error, name))) from error
    if device != "cpu":
        from outrider.models.loading import parse_device, parse_dtype  # heavy

        parse_dtype(dtype, parse_device(device))
