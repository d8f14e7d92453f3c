"""The claim `idle`: K=0 through free runs costs nothing beside a deployment without drafts.

Two clusters run side by side, one of them without any draft service; texts alternate between them,
and both are started anew several times, so that where their memory happens to lie is averaged, too.
Each alternation is a ratio: tokens a second behind the first token, without drafts over with.

Both are as users get them. That includes how long idle threads wait awake, which is shorter where a
draft model is served (`outrider/cli/environment.py`); the result says how long. GOMP_SPINCOUNT, set
by the user, holds for both and leaves the free run alone to be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict

from benchmarks.arrivals import decode_rate
from benchmarks.prompts import running_text
from benchmarks.report import Limit
from benchmarks.streams import Asked, record
from loadtest.log import Log
from loadtest.method import Outcome, Plan
from loadtest.ratios import median_interval
from outrider import Client
from outrider.cli.bars import Show
from outrider.cli.environment import service_environment
from outrider.models.tokenizer import load_tokenizer

STARTS = 4
TEXTS, PROMPT = 4, 32  # of each side and alternation; tokens of a prompt
MOST_COST = 1.0  # per cent


def idle(plan: Plan, log: Log, show: Show) -> Outcome:
    """Per cent of the rate that K=0 loses where a draft service is there."""
    keys = [f"idle/{turn}" for turn in range(plan.alternations)]
    missing = [key for key in keys if key not in log]
    show("idle", len(keys) - len(missing), len(keys))
    if missing:
        asked = _asked(plan)
        size = -(-len(keys) // STARTS)
        for start in range(0, len(missing), size):
            _alternate(plan, asked, missing[start : start + size], log)
            show("idle", sum(key in log for key in keys), len(keys))
    costs = [100 * (log[key]["without"] / log[key]["with"] - 1) for key in keys]
    cost = median_interval(costs)
    limit = Limit("cost of K=0 in tokens/s, per cent, median", cost.median, MOST_COST)
    figures = {"cost_percent": asdict(cost), "spin_count": spin_counts(plan)}
    return Outcome(figures, [limit])


def spin_counts(plan: Plan) -> dict[str, str]:
    """How often idle threads look before they sleep, with and without drafts."""
    sides = {"with": plan.served.cluster(), "without": plan.served.cluster(drafters=False)}
    return {
        name: service_environment(side.drafters)["GOMP_SPINCOUNT"] for name, side in sides.items()
    }


def _alternate(plan: Plan, asked: Sequence[Asked], keys: Sequence[str], log: Log) -> None:
    with ExitStack() as stack:
        clients = {}
        for name, drafters in (("with", True), ("without", False)):
            cluster = stack.enter_context(plan.served.cluster(drafters=drafters))
            clients[name] = stack.enter_context(Client(cluster.address))
            record(clients[name], asked[0])  # warms up
        for turn, key in enumerate(keys):
            order = ("with", "without") if turn % 2 == 0 else ("without", "with")
            rates = {
                name: decode_rate([record(clients[name], each) for each in asked]) for name in order
            }
            log.add(key, rates)


def _asked(plan: Plan) -> list[Asked]:
    tokenizer = load_tokenizer(plan.served.target)
    return [
        Asked(running_text(tokenizer, PROMPT, start), plan.load.max_tokens)
        for start in range(TEXTS)
    ]
