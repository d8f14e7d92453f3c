"""Many requests against a cluster: does its memory stay, do its sessions end?

    python -m benchmarks.soak [--requests 2000] [--at-once 16] [--dtype auto] [--out FILE]

Whole texts of mixed lengths, cancels in mid-stream, deadlines that cannot be kept and requests
that must be refused (benchmarks/orders.py), a fixed number at a time. Resident memory of every
service is sampled along the way: what it was after a fifth to three tenths of the requests is
`warm`, and what the last tenth made of it is the growth. At the end no session may be left, and
every error must be one that was provoked.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn
from rich.table import Table

from benchmarks import memory, orders, report
from benchmarks.memory import Sample
from benchmarks.orders import Order
from benchmarks.prompts import running_text
from benchmarks.report import Limit
from outrider import AsyncClient, Client
from outrider.cli.cluster import Cluster
from outrider.models.tokenizer import load_tokenizer
from outrider.serving.channels import connect_blocking
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2, target_pb2_grpc

GROWTH_LIMIT = 5.0  # percent
SAMPLE_S = 0.5
SETTLE_S = 30.0
INFO_S = 10.0
STARTS = 64
STORED = 100  # samples in the result; all make the growth


class Soak:
    """A run over all orders; `samples` and `surprises` fill along the way.

    Args:
        cluster: that is soaked.
        texts: token ids from each start, long enough for every order.
        at_once: requests in progress.
    """

    def __init__(self, cluster: Cluster, texts: Sequence[Sequence[int]], at_once: int) -> None:
        self.samples: list[Sample] = []
        self.surprises: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._texts = texts
        self._gate = asyncio.Semaphore(at_once)

    async def run(self, asked: Sequence[Order], progress: Progress, task: TaskID) -> None:
        """All orders."""
        sampling = asyncio.create_task(self._sample(len(asked)))
        async with AsyncClient(self._cluster.address) as client, asyncio.TaskGroup() as group:
            for order in asked:
                await self._gate.acquire()
                self._cluster.check()
                one = group.create_task(self._one(client, order))
                one.add_done_callback(lambda _: progress.advance(task))
        sampling.cancel()
        self.samples.append(self._now(1.0))

    async def _one(self, client: AsyncClient, order: Order) -> None:
        try:
            surprise = await orders.run(client, order, lambda at, n: self._texts[at][:n])
        finally:
            self._gate.release()
        self.done[order.kind] += 1
        if surprise is not None:
            self.surprises[surprise] += 1

    async def _sample(self, count: int) -> None:
        while True:
            self.samples.append(self._now(self.done.total() / count))
            await asyncio.sleep(SAMPLE_S)

    def _now(self, share: float) -> Sample:
        pids = self._cluster.pids
        return Sample(share, {name: memory.resident_mib(pid) for name, pid in pids.items()})


def live_sessions(cluster: Cluster) -> dict[str, int]:
    """Sessions and requests that each service still counts as open, and blocks of the target's KV
    memory that neither a session nor a past text accounts for once there are no sessions."""
    with connect_blocking(cluster.target_address) as channel:
        target = target_pb2_grpc.TargetStub(channel).GetInfo(  # type: ignore[no-untyped-call]
            target_pb2.TargetInfoRequest(), timeout=INFO_S
        )
    with connect_blocking(cluster.draft_address) as channel:
        draft = draft_pb2_grpc.DraftStub(channel).GetInfo(  # type: ignore[no-untyped-call]
            draft_pb2.DraftInfoRequest(), timeout=INFO_S
        )
    with Client(cluster.address) as client:
        requests = client.info(timeout=INFO_S).live_requests
    return {
        "target": target.live_sessions,
        "draft": draft.live_sessions,
        "orchestrator": requests,
        "kv blocks astray": target.kv_memory.blocks_used - target.kv_memory.blocks_kept,
    }


async def settled(cluster: Cluster) -> dict[str, int]:
    """Sessions left when all have ended, or when that took too long."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + SETTLE_S
    while True:
        left = await asyncio.to_thread(live_sessions, cluster)
        if not any(left.values()) or clock() > deadline:
            return left
        await asyncio.sleep(SAMPLE_S)


def table(growths: dict[str, tuple[float, float]], left: dict[str, int]) -> Table:
    """Figures for people."""
    made = Table("service", "warm, MiB", "growth", "live sessions")
    for name, (warm, percent) in growths.items():
        made.add_row(name, f"{warm:.0f}", f"{percent:+.1f} %", str(left.get(name, "-")))
    return made


async def soak(cluster: Cluster, given: Any) -> tuple[Soak, dict[str, int]]:
    """Runs all orders and waits for the last sessions to end."""
    tokenizer = load_tokenizer("default")
    texts = [running_text(tokenizer, max(orders.LENGTHS), start) for start in range(STARTS)]
    run = Soak(cluster, texts, given.at_once)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=report.progress_console()) as progress:
        task = progress.add_task("", total=given.requests)
        await run.run(orders.make(given.requests), progress, task)
    return run, await settled(cluster)


def main() -> int:
    """Runs, prints, stores; 1 where memory grew, sessions are left or an error was none of ours."""
    parser = report.parser(__doc__, "soak")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()
    report.keep_to(given.cores)
    with Cluster(drafters=["ngram"], dtype=given.dtype) as cluster:
        run, left = asyncio.run(soak(cluster, given))
        with Client(cluster.address) as client:
            dtype = client.info().model.numerics.label
    growths = {name: memory.growth(run.samples, name) for name in run.samples[0].mib}
    console = report.console()
    console.print(table(growths, left))
    console.print(", ".join(f"{count} {kind}" for kind, count in sorted(run.done.items())))
    for surprise, count in run.surprises.most_common(10):
        console.print(f"{count}x unexpected: {surprise}", markup=False)
    limits = [
        Limit(f"growth of {name}, percent", percent, GROWTH_LIMIT)
        for name, (_, percent) in growths.items()
    ]
    limits += [Limit(f"live sessions of {name}", count, 0) for name, count in left.items()]
    limits.append(Limit("errors that were not provoked", run.surprises.total(), 0))
    figures = {
        "memory": {
            name: {"warm_mib": warm, "growth_percent": percent}
            for name, (warm, percent) in growths.items()
        },
        "live_sessions": left,
        "requests": dict(run.done),
        "errors_provoked": run.done["bad"] + run.done["late"],
        "unexpected": dict(run.surprises),
        "samples": [
            {"share": each.share, "mib": dict(each.mib)}
            for each in memory.thinned(run.samples, STORED)
        ],
    }
    facts = {"dtype": dtype, "requests_in_all": given.requests, "at_once": given.at_once}
    return report.finish(given.out, facts, figures, limits)


if __name__ == "__main__":
    sys.exit(main())
