"""Which settings acceptance is measured under, and which figures its limits look at."""

from __future__ import annotations

from typing import Any

from benchmarks.acceptance import Found, Setting, limits, settings


def row(setting: Setting, first: float, tokens: int) -> dict[str, Any]:
    return Found(setting, tokens, 100, first, {"qa": 1.0}).to_json()


def test_every_method_is_asked_for_chains_and_those_that_can_for_trees() -> None:
    found = list(settings(["ngram", "eagle", "lookahead"], [0.0, 1.0]))
    assert Setting("ngram", 0.0, 5, 5) in found
    assert not any(each.nodes > each.depth for each in found if each.method == "ngram")
    assert Setting("eagle", 1.0, 4, 4) in found
    assert Setting("eagle", 1.0, 5, 12) in found
    assert [each for each in found if each.method == "lookahead"] == [
        Setting("lookahead", 0.0, 4, 12),
        Setting("lookahead", 1.0, 4, 12),
    ]


def test_limits_take_the_chain_and_the_best_tree_at_temperature_0() -> None:
    rows = [
        row(Setting("eagle", 0.0, 4, 4), 0.5, 180),
        row(Setting("eagle", 0.0, 4, 12), 0.5, 200),
        row(Setting("eagle", 0.0, 5, 12), 0.5, 210),
        row(Setting("eagle", 1.0, 4, 4), 0.9, 400),
        row(Setting("lookahead", 0.0, 4, 12), 0.0, 130),
    ]
    found = {limit.name: (limit.value, limit.kept) for limit in limits(rows)}
    assert found == {
        "eagle, chain": (1.8, True),
        "eagle, tree": (2.1, True),
        "lookahead, chain": (1.3, False),
    }
