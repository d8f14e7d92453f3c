"""What services would refuse of their flags, found before any of them is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.drafting.specs import check_distinct, check_path


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
        from outrider.models.loading import parse_device  # heavy, and only these may be missing

        parse_device(device)
