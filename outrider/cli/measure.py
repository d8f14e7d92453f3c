"""Measures methods over prompts and condenses the rows into figures."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.cli.door import speculative
from outrider.cli.prompts import Prompt
from outrider.client import Client
from outrider.requests import Options
from outrider.results import GenerationResult

PLAIN = "plain"
WARM_UP_TOKENS = 2


@dataclass(frozen=True)
class Setting:
    """A method with a fixed K, 0 for plain, and its most drafted nodes: the drafter's own number
    where None."""

    method: str
    depth: int
    nodes: int | None = None


SHAPES = ((2, 2), (4, 4), (8, 8), (4, 8), (4, 12), (8, 12))
"""Depths and nodes that a method is tried with."""


@dataclass(frozen=True)
class Row:
    """One prompt under the setting that is called `method`; seconds are the client's, from the call
    to the last token."""

    prompt: str
    category: str
    method: str
    seconds: float
    result: GenerationResult
    identical: bool | None
    plain_rate: float

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return self.result.usage.completion_tokens

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def as_json(self) -> dict[str, Any]:
        """The row as it stands in a result file."""
        report = self.result.speculation
        return {
            "prompt": self.prompt,
            "category": self.category,
            "method": self.method,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "first_token_seconds": self.result.timings.first_token_us / 1e6,
            "rounds": report.rounds,
            "drafted": report.drafted,
            "accepted": report.accepted,
            "emitted": report.emitted,
            "finish_reason": self.result.finish_reason,
            "exact": self.result.exact,
            "identical_to_plain": self.identical,
        }


def choose_methods(asked: Sequence[str], served: Sequence[str]) -> list[str]:
    """The methods to measure, plain first: everything is compared with it.

    Raises:
        ValueError: one is not served.
    """
    for method in asked:
        if method != PLAIN and method not in served:
            raise ValueError(
                f"methods: {method!r} is not served; served are {', '.join([PLAIN, *served])}"
            )
    return list(dict.fromkeys([PLAIN, *asked]))


def measure(
    client: Client, prompts: Sequence[Prompt], settings: Mapping[str, Setting], options: Options
) -> Iterator[Row]:
    """Rows of all settings, plain's first, prompt after prompt.

    They take turns on each prompt, so that a drift of the machine meets all alike. Before, each is
    given it for a few tokens: its kernels are warm then, and the target has the prompt in its
    prefix cache for all of them, not for those that come later.
    """
    defined = options.get("temperature") == 0.0 or options.get("seed") is not None
    few: Options = {**options, "max_tokens": min(WARM_UP_TOKENS, options["max_tokens"])}
    for prompt in prompts:
        for setting in settings.values():
            _generate(client, prompt, setting, few)
        plain: tuple[GenerationResult, float] | None = None
        for name, setting in settings.items():
            started = time.perf_counter()
            result = _generate(client, prompt, setting, options)
            seconds = time.perf_counter() - started
            if plain is None:
                plain = result, result.usage.completion_tokens / seconds
            same = result.token_ids == plain[0].token_ids if defined else None
            yield Row(prompt.name, prompt.category, name, seconds, result, same, plain[1])


def candidates(methods: Sequence[str]) -> dict[str, Setting]:
    """Plain, and each method in all `SHAPES`."""
    shaped = {
        f"{method} {depth}/{nodes}": Setting(method, depth, nodes)
        for method in methods
        if method != PLAIN
        for depth, nodes in SHAPES
    }
    return {PLAIN: Setting(PLAIN, 0), **shaped}


def fastest(settings: Mapping[str, Setting], rows: Sequence[Row]) -> dict[str, Setting]:
    """Of each method the setting with the most tokens in its seconds over all rows."""
    rates: dict[str, float] = {}
    for name in settings:
        own = [row for row in rows if row.method == name]
        rates[name] = sum(row.tokens for row in own) / sum(row.seconds for row in own)
    best: dict[str, Setting] = {}
    for name in sorted(settings, key=rates.__getitem__, reverse=True):
        best.setdefault(settings[name].method, settings[name])
    return {method: best[method] for method in dict.fromkeys(s.method for s in settings.values())}


def some_of_each(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """The first `count` prompts of each category."""
    seen: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        seen[prompt.category] += 1
        if seen[prompt.category] <= count:
            chosen.append(prompt)
    return chosen


def _generate(
    client: Client, prompt: Prompt, setting: Setting, options: Options
) -> GenerationResult:
    block = speculative(setting.method, setting.depth, setting.nodes)
    asked: Options = {**options, "speculative": block}
    if prompt.chat:
        return client.chat([{"role": "user", "content": prompt.text}], **asked)
    return client.generate(prompt.text, **asked)


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of one method over some prompts.

    speedup: median over prompts of tokens per second against plain's on the same prompt. None
        stands where a figure is not defined: acceptance without a drafted node or a round, identity
        for unseeded sampling.
    """
    tokens, seconds = sum(row.tokens for row in rows), sum(row.seconds for row in rows)
    reports = [row.result.speculation for row in rows]
    drafted, rounds = sum(each.drafted for each in reports), sum(each.rounds for each in reports)
    same = [row.identical for row in rows]
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "speedup": statistics.median(row.rate / row.plain_rate for row in rows),
        "acceptance_rate": sum(each.accepted for each in reports) / drafted if drafted else None,
        "acceptance_length": sum(each.emitted for each in reports) / rounds if rounds else None,
        "identical_to_plain": None if None in same else all(same),
        "prompts": len(rows),
    }


def summarise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The figures of each method, in all and by category."""
    methods = []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        categories = {
            name: figures([row for row in own if row.category == name])
            for name in dict.fromkeys(row.category for row in own)
        }
        methods.append({"method": method, **figures(own), "categories": categories})
    return methods
