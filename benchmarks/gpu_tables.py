"""Results of a GPU check for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tables(found: Mapping[str, Any]) -> list[str]:
    """Everything for people, line by line."""
    lines = [f"{found['run']['device']}"]
    for row in found["exactness"]:
        figures = (
            f"error {row['greatest_error']:.1e}, limit {row['limit']:g}"
            if "greatest_error" in row
            else _parted_line(row)
        )
        lines.append(f"  {row['name']:<36}{figures}  {'held' if row['held'] else 'DOES NOT HOLD'}")
    for name, shape in found["shapes"].items():
        if "skipped" in shape:
            lines.append(f"{name}: skipped, {shape['skipped']}")
            continue
        lines.append(f"{name}, bfloat16, {shape['decoder']} decoder: ms of a pass")
        lines.append(
            f"{'context':>14}" + "".join(f"{r:>9}" for r in next(iter(shape["pass_ms"].values())))
        )
        for context, row in shape["pass_ms"].items():
            lines.append(f"{context:>14}" + "".join(f"{ms:9.2f}" for ms in row.values()))
        lines.append(f"{'streams':>14}" + "".join(f"{n:>12}" for n in shape["texts"]))
        for method, row in shape["tokens_per_second"].items():
            lines.append(f"{method:>14}" + "".join(f"{rate:12.1f}" for rate in row.values()))
        for streams, row in shape["texts"].items():
            lines.append(f"  ngram beside plain, {streams} streams: {_parted_line(row)}")
    return lines


def _parted_line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['differ']} of {row['texts']} texts differ, widest gap {row['widest_gap']:.1e}, "
        f"acceptance length {row['acceptance_length']:.2f}"
    )
