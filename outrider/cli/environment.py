"""The environment of services that share a machine: threads, and how long they wait awake.

A forward is some hundred small products, and behind each its threads wait for one another. Awake
they are quicker. But where two services compute at once, those that wait awake steal the cores from
those for whom they wait, and both slow down several times over; then a short wait pays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from outrider.drafting.specs import MODELS, split_spec

LONG, SHORT = "100000", "1000"


def service_environment(drafters: Sequence[str]) -> dict[str, str]:
    """What the services of a cluster with these drafters (NAME[=PATH]) need.

    Threads for every core, which wait awake for long only where no draft model computes beside the
    target. What the user has set stands.
    """
    models = any(split_spec(spec)[0] in MODELS for spec in drafters)
    chosen = {
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        "GOMP_SPINCOUNT": SHORT if models else LONG,
        "TOKENIZERS_PARALLELISM": "false",
    }
    return {name: os.environ.get(name, value) for name, value in chosen.items()}
