"""What compare.py can run, and how its figures become ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.arrivals import Arrivals, decode_rate
from benchmarks.report import Limit


@dataclass(frozen=True)
class Case:
    """One way to run an engine.

    Args:
        engine: module of `benchmarks.engines`.
        options: its options.
        at_least: decode rate over transformers' best plain that it should reach.
    """

    engine: str
    options: Mapping[str, str] = field(default_factory=dict)
    at_least: float | None = None


def _transformers(**options: str) -> Case:
    return Case("transformers", options)


def _outrider(dtype: str, method: str, at_least: float | None = None) -> Case:
    return Case("outrider", {"dtype": dtype, "method": method}, at_least)


BASELINES = {
    f"transformers {dtype} {attention}": _transformers(dtype=dtype, attention=attention)
    for dtype in ("float32", "bfloat16")
    for attention in ("sdpa", "eager")
}
CASES: dict[str, Case] = {
    **BASELINES,
    "transformers lookup": _transformers(dtype="float32", help="lookup"),
    "transformers assisted": _transformers(dtype="float32", help="assistant"),
    "llama.cpp": Case("llama_cpp"),
    "openvino genai": Case("openvino_genai"),
    "outrider float32 plain": _outrider("float32", "plain"),
    "outrider float32 ngram": _outrider("float32", "ngram"),
    "outrider bfloat16 plain": _outrider("bfloat16", "plain", 1.9),
    "outrider bfloat16 ngram": _outrider("bfloat16", "ngram", 2.2),
    "outrider bfloat16 auto": _outrider("bfloat16", "auto", 2.7),
    "outrider int8 plain": _outrider("int8", "plain", 3.0),
    "outrider int8 ngram": _outrider("int8", "ngram", 3.6),
    "outrider int8 auto": _outrider("int8", "auto", 4.0),
}
PEERS = (
    ("outrider bfloat16 auto", "transformers assisted", 2.5),
    ("outrider int8 auto", "llama.cpp", 1.0),
    ("outrider int8 auto", "openvino genai", 1.0),
)
"""Decode rates of one case over another's, and what they should be at least."""


def choose(asked: Sequence[str]) -> list[str]:
    """Names of the cases asked for, by engine or by case, in the order of CASES.

    None asked for is all.

    Raises:
        ValueError: one is neither an engine nor a case.
    """
    engines = list(dict.fromkeys(case.engine for case in CASES.values()))
    for name in asked:
        if name not in CASES and name not in engines:
            known = ", ".join([*engines, *CASES])
            raise ValueError(f"engines: {name!r} is none of {known}")
    return [name for name, case in CASES.items() if not asked or {name, case.engine} & {*asked}]


def figures(results: Sequence[Mapping[str, Any]], plain: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The figures of one case.

    Args:
        results: the worker's, one a round.
        plain: token ids of the texts that count as right; empty where none are known.
    """
    rounds = [[Arrivals(**text) for text in result["texts"]] for result in results]
    texts = rounds[0]
    return {
        "tokens_per_second": statistics.median(decode_rate(each) for each in rounds),
        "first_token_s": statistics.median(t.first_token_s for each in rounds for t in each),
        "tokens": sum(len(text.ids) for text in texts),
        "texts": len(texts),
        "same_texts": sum(text.ids == list(ids) for text, ids in zip(texts, plain, strict=False)),
        "compared_texts": min(len(texts), len(plain)),
        "version": results[0]["version"],
        "weights": results[0]["weights"],
        "load_s": statistics.median(result["load_s"] for result in results),
    }


def best_plain(measured: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The fastest of transformers' plain cases; None where none was measured."""
    found = [name for name in BASELINES if name in measured]
    return max(found, key=lambda name: measured[name]["tokens_per_second"], default=None)


def with_ratios(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The figures with `rate_ratio` and `first_token_ratio` to the best plain; None without one."""
    best = best_plain(measured)

    def ratio(name: str, key: str) -> float | None:
        return None if best is None else measured[name][key] / measured[best][key]

    return {
        name: {
            **row,
            "rate_ratio": ratio(name, "tokens_per_second"),
            "first_token_ratio": ratio(name, "first_token_s"),
        }
        for name, row in measured.items()
    }


def limits(rows: Mapping[str, Mapping[str, Any]], names: Iterable[str] = CASES) -> list[Limit]:
    """The ratios that should be reached, of the cases that were measured."""
    found = []
    for name in names:
        at_least = CASES[name].at_least
        ratio = rows[name]["rate_ratio"] if name in rows else None
        if at_least is not None and ratio is not None:
            found.append(Limit(f"{name}, decode rate", ratio, at_least, least=True))
    for name, peer, at_least in PEERS:
        if name in rows and peer in rows:
            ratio = rows[name]["tokens_per_second"] / rows[peer]["tokens_per_second"]
            found.append(Limit(f"{name} over {peer}", ratio, at_least, least=True))
    return found
