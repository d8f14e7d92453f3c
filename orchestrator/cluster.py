"""The peers of an orchestrator: one kind of target, the draft replicas, and whether they fit each
other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc.aio

from orchestrator.requests import Bounds, Method
from orchestrator.router import Pool, Replica
from orchestrator.settings import OrchestratorSettings
from outrider.drafting.base import FeatureSpec
from outrider.serving.errors import FailedPrecondition, Unavailable
from outrider.serving.latency import delayed
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2, target_pb2_grpc

logger = logging.getLogger(__name__)


class Cluster:
    """Targets and drafts, kept current in the background.

    Args:
        fingerprint: of the orchestrator's own tokenizer.
        longest_token: bytes of its longest token.
    """

    def __init__(
        self, settings: OrchestratorSettings, fingerprint: str, longest_token: int
    ) -> None:
        self._settings = settings
        self._fingerprint = fingerprint
        self._longest_token = longest_token
        self.targets: Pool[target_pb2.TargetInfo] = Pool(
            [settings.target],
            delayed(target_pb2_grpc.TargetStub, "Verify", settings.inject_target_latency_ms),
            lambda stub: stub.GetInfo(target_pb2.TargetInfoRequest()),
            lambda address, info: self._check(
                f"target {address}", info.model.tokenizer_fingerprint
            ),
            settings.security,
        )
        self.drafts: Pool[draft_pb2.DraftInfo] = Pool(
            settings.draft,
            delayed(draft_pb2_grpc.DraftStub, "Propose", settings.inject_draft_latency_ms),
            lambda stub: stub.GetInfo(draft_pb2.DraftInfoRequest()),
            lambda address, info: self._check(f"draft {address}", info.model.tokenizer_fingerprint),
            settings.security,
        )
        self.target_info: target_pb2.TargetInfo | None = None
        self._known: dict[str, draft_pb2.DrafterInfo] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Waits for a target and, where drafts are configured, for one draft.

        Raises:
            FailedPrecondition: a peer's tokenizer differs from this one's.
            Unavailable: no target within the deadline. A missing draft is only logged.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.peers_deadline_s
        while loop.time() < deadline:
            await self.refresh()
            refusals = self.targets.refusals() + self.drafts.refusals()
            if refusals:
                raise FailedPrecondition("; ".join(refusals))
            if self.targets.live() and (self.drafts.live() or not self._settings.draft):
                break
            await asyncio.sleep(0.2)
        if not self.targets.live():
            raise Unavailable(
                f"target {self._settings.target}: no answer in "
                f"{self._settings.peers_deadline_s:g} s"
            )
        if self._settings.draft and not self.drafts.live():
            logger.warning("no draft service answers; requests run at K=0 until one does")
        self._task = asyncio.create_task(self._keep_current(), name="peers")

    async def stop(self) -> None:
        """Stops looking and closes the channels."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.targets.close()
        await self.drafts.close()

    async def refresh(self) -> None:
        """Looks at every peer once."""
        await asyncio.gather(self.targets.refresh(), self.drafts.refresh())
        for target in self.targets.live():
            self.target_info = target.info
        for draft in self.drafts.live():
            assert draft.info is not None
            for drafter in draft.info.drafters:
                self._known.setdefault(drafter.method, drafter)

    @property
    def info(self) -> target_pb2.TargetInfo:
        """What the target said last.

        Raises:
            Unavailable: it never answered.
        """
        if self.target_info is None:
            raise Unavailable(f"target {self._settings.target}: never answered")
        return self.target_info

    @property
    def bounds(self) -> Bounds:
        """What target and settings allow together."""
        info = self.info
        nodes = min(self._settings.max_nodes, info.max_nodes)
        depth = min(self._settings.max_depth, nodes)
        for draft in self.drafts.live():
            assert draft.info is not None
            depth, nodes = min(depth, draft.info.max_depth), min(nodes, draft.info.max_nodes)
        context = info.model.context_length
        text = context * self._longest_token
        return Bounds(info.model.vocab_size, context, text, depth, nodes)

    @property
    def methods(self) -> list[Method]:
        """Drafters seen so far, in the order in which draft services list them."""
        return [
            Method(
                name,
                drafter.recommended_depth,
                drafter.recommended_nodes,
                drafter.whole_trees,
            )
            for name, drafter in self._known.items()
        ]

    def features(self, method: str) -> tuple[FeatureSpec | None, bool]:
        """The features that a drafter asks for, and whether it wants samples."""
        drafter = self._known[method]
        wanted = drafter.features if drafter.HasField("features") else None
        spec = None if wanted is None else FeatureSpec(tuple(wanted.taps), wanted.window)
        return spec, drafter.wants_samples

    def services(self) -> list[tuple[str, str]]:
        """Role and address of every replica that answers."""
        targets = [("target", replica.address) for replica in self.targets.live()]
        return targets + [("draft", replica.address) for replica in self.drafts.live()]

    def pick_target(self) -> Replica[target_pb2.TargetInfo]:
        """The target for a new session.

        Raises:
            Unavailable: none answers.
        """
        replica = self.targets.pick()
        if replica is None:
            raise Unavailable(f"target {self._settings.target}: no replica answers")
        return replica

    def draft_connector(self, method: str) -> Callable[[], Any]:
        """Opens a Propose call on the least loaded draft replica that has `method`."""

        async def connect() -> (
            tuple[grpc.aio.StreamStreamCall[Any, Any], Callable[[], None]] | None
        ):
            replica = self.drafts.pick(lambda info: any(d.method == method for d in info.drafters))
            if replica is None:
                return None
            replica.take()
            return replica.stub.Propose(), replica.release

        return connect

    def _check(self, name: str, fingerprint: str) -> None:
        if fingerprint != self._fingerprint:
            raise FailedPrecondition(
                f"tokenizer: {name} has fingerprint {fingerprint}, "
                f"the orchestrator's {self._settings.tokenizer} has {self._fingerprint}"
            )

    async def _keep_current(self) -> None:
        while True:
            await asyncio.sleep(self._settings.refresh_s)
            await self.refresh()
