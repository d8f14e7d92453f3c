"""Outrider through its whole stack: target, draft and orchestrator processes, the gRPC client.

Options: dtype (float32, bfloat16, int8), method (plain, or a drafter; auto chooses among all that
the default target, which a job's is, comes with).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import outrider
from benchmarks.engines import Arrived, Engine, EngineRefused, Job
from outrider.cli.cluster import Cluster
from outrider.cli.door import speculative
from outrider.cli.processes import ClusterError
from outrider.drafting.specs import AUTO, default_specs
from outrider.models.hub import DEFAULT

PLAIN = "plain"


class _Outrider:
    def __init__(self, client: outrider.Client, method: str) -> None:
        info = client.info()
        numerics = info.model.numerics
        self.version = f"outrider {info.version}"
        self.weights = f"{numerics.dtype}, quantisation {numerics.quantization}"
        self._client = client
        self._speculative = speculative(method, None)

    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        for chunk in self._client.stream(
            prompt_token_ids=prompt_ids,
            max_tokens=tokens,
            temperature=0.0,
            ignore_eos=True,
            speculative=self._speculative,
        ):
            arrived(chunk.token_ids)


@contextmanager
def load(job: Job) -> Iterator[Engine]:
    """A cluster of its own.

    Raises:
        EngineRefused: it does not start; the dtype may not be served.
    """
    method = job.options["method"]
    drafters = (
        default_specs(DEFAULT) if method == AUTO else ["ngram" if method == PLAIN else method]
    )
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Cluster(DEFAULT, drafters, dtype=job.options["dtype"]))
        except ClusterError as error:
            raise EngineRefused(str(error).strip().splitlines()[-1]) from error
        client = stack.enter_context(outrider.Client(cluster.address))
        yield _Outrider(client, method)
