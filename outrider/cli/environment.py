"""The environment of services that share a machine: threads, and how long they wait awake.

A forward is some hundred small products, and behind each its threads wait for one another. Awake
they are quicker: alone, the default target in int8 gave 113 tokens a second with a long wait and 95
with a short one. But where two services compute at once, those that wait awake steal the cores from
those for whom they wait: six streams with a draft model as large as the target gave 2.6 tokens a
second with the long wait and 37 with the short one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

LONG, SHORT = "100000", "1000"
MODEL_FREE = frozenset({"ngram", "lookahead", "auto"})


def service_environment(drafters: Sequence[str]) -> dict[str, str]:
    """What the services of a cluster with these drafters (NAME[=PATH]) need.

    Threads for every core, which wait awake for long only where no draft model computes beside the
    target. What the user has set stands.
    """
    models = any(spec.partition("=")[0] not in MODEL_FREE for spec in drafters)
    chosen = {
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        "GOMP_SPINCOUNT": SHORT if models else LONG,
        "TOKENIZERS_PARALLELISM": "false",
    }
    return {name: os.environ.get(name, value) for name, value in chosen.items()}
