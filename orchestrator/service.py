"""The Generate RPC: a request in, tokens and text out as they are committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc.aio
import numpy as np

from orchestrator.cluster import Cluster
from orchestrator.control import Control, control
from orchestrator.knowledge import Knowledge
from orchestrator.loop import Limits, Loop
from orchestrator.measured import measured
from orchestrator.metrics import Metrics, Served
from orchestrator.peers import PeerFull, PeerLost
from orchestrator.remote_draft import RemoteDrafter
from orchestrator.remote_target import RemoteVerifier
from orchestrator.reply import Reply
from orchestrator.report import Report
from orchestrator.requests import PLAIN, Method, Request, parse
from orchestrator.router import Replica
from orchestrator.settings import OrchestratorSettings
from orchestrator.statistics import Statistics
from outrider import __version__
from outrider.core.acceptance import EvidenceError
from outrider.models.tokenizer import tokenizer_fingerprint
from outrider.serving.errors import ResourceExhausted, Unavailable
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc, target_pb2

Context = Any  # grpc.aio.ServicerContext is generic in stubs only


class OrchestratorService(orchestrator_pb2_grpc.OrchestratorServicer):
    """The door of a deployment.

    Args:
        tokenizer: the target's transformers tokenizer.
    """

    def __init__(self, tokenizer: Any, settings: OrchestratorSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        longest = max(len(token.encode()) for token in tokenizer.get_vocab())
        self._cluster = Cluster(settings, tokenizer_fingerprint(tokenizer), longest)
        self._statistics: Statistics | None = None
        self._knowledge = Knowledge()
        self._metrics: Metrics | None = None
        self.metrics_served: Served | None = None
        self._live = 0
        self._total = 0

    @property
    def name(self) -> str:
        """Full gRPC service name."""
        return "outrider.v1.Orchestrator"

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Finds the peers, and opens /metrics where it is asked for."""
        await self._cluster.start()
        if self._settings.redis_url is not None:
            url = self._settings.redis_url.get_secret_value()
            self._statistics = Statistics(
                url,
                self._cluster.info.model.name,
                self._knowledge,
                lambda: [method.name for method in self._cluster.methods],
                self._cluster.services,
            )
            self._statistics.start()
        if self._settings.metrics_port is not None:
            self._metrics = Metrics(self._cluster.info.model.name)
            self.metrics_served = self._metrics.serve(
                self._settings.metrics_host, self._settings.metrics_port
            )

    async def stop(self) -> None:
        """Writes the last counts and lets the peers go."""
        if self.metrics_served is not None:
            await asyncio.to_thread(self.metrics_served.stop)
        if self._statistics is not None:
            await self._statistics.stop()
        await self._cluster.stop()

    async def Generate(
        self, message: orchestrator_pb2.GenerateRequest, context: Context
    ) -> AsyncGenerator[orchestrator_pb2.GenerateReply, None]:
        """Streams one request's tokens; the last message carries the totals."""
        if self._live >= self._settings.max_requests:
            raise ResourceExhausted(
                f"requests: {self._live} in progress, limit {self._settings.max_requests}"
            )
        self._live += 1
        self._total += 1
        try:
            # On a thread, since a long text takes long and the streams of others must not wait.
            request = await asyncio.to_thread(
                parse, message, self._tokenizer, self._cluster.bounds, self._cluster.methods
            )
            async with aclosing(self._generate(request)) as replies:
                async for reply in replies:
                    yield reply
        except PeerFull as error:
            raise ResourceExhausted(str(error)) from error
        except (PeerLost, EvidenceError) as error:
            raise Unavailable(str(error)) from error
        finally:
            self._live -= 1

    async def GetInfo(
        self, request: orchestrator_pb2.OrchestratorInfoRequest, context: Context
    ) -> orchestrator_pb2.OrchestratorInfo:
        """What is served, and the limits."""
        bounds, methods = self._cluster.bounds, self._cluster.methods
        return orchestrator_pb2.OrchestratorInfo(
            model=self._cluster.info.model,
            methods=[method.name for method in methods],
            recommended_depths=[method.recommended_depth for method in methods],
            recommended_nodes=[method.recommended_nodes for method in methods],
            measured=measured(self._knowledge),
            max_depth=bounds.max_depth,
            max_nodes=bounds.max_nodes,
            live_requests=self._live,
            requests_total=self._total,
            version=__version__,
        )

    async def _generate(
        self, request: Request
    ) -> AsyncGenerator[orchestrator_pb2.GenerateReply, None]:
        started = time.perf_counter()
        report = Report(method=request.speculation.method or PLAIN)
        target = self._cluster.pick_target()
        assert target.info is not None
        drafter = self._drafter(request)
        verifier = RemoteVerifier(
            target.stub, target.info.model.vocab_size, self._settings.target_deadline_s
        )
        reply = Reply(request, target.info, self._tokenizer.backend_tokenizer, started)
        target.take()
        steered = self._control(request, drafter, target)
        if self._metrics is not None:
            self._metrics.running.inc()
        try:
            loop = self._loop(request, verifier, drafter, report, steered)
            later = not loop.call_drafter()
            features = None if drafter is None else drafter.features
            await verifier.open(
                request.request_id,
                request.prompt,
                request.sampling,
                request.max_tokens,
                features,
                later=later,
            )
            async with aclosing(loop.run()) as committed:
                async for part in committed:
                    message = reply.part(part)
                    report.drop(part.kinds[len(message.token_ids) :])
                    yield message
                    if reply.finished:
                        break
            yield reply.summary(report, verifier, drafter)
        finally:
            if steered.shadow is not None:
                steered.shadow.close()
            verifier.close()
            target.release()
            if drafter is not None:
                await drafter.close()
            if self._statistics is not None:
                self._statistics.book(report, request.class_)
            if self._metrics is not None:
                self._metrics.ended(report, reply.tokens)
                self._metrics.running.dec()

    def _loop(
        self,
        request: Request,
        verifier: RemoteVerifier,
        drafter: RemoteDrafter | None,
        report: Report,
        steered: Control,
    ) -> Loop:
        return Loop(
            request.prompt,
            Limits(
                request.max_tokens,
                () if request.ignore_eos else tuple(self._cluster.info.eos_ids),
                request.speculation.tree_exact,
            ),
            verifier,
            drafter,
            steered.controller,
            np.random.default_rng().random,
            report,
            steered.witnesses,
            steered.shadow,
        )

    def _control(
        self,
        request: Request,
        drafter: RemoteDrafter | None,
        target: Replica[target_pb2.TargetInfo],
    ) -> Control:
        name = request.speculation.method
        methods = {method.name: method for method in self._cluster.methods}
        assert target.info is not None
        return control(
            request,
            drafter,
            (target.address, target.info),
            methods.get(name, Method(name, request.speculation.depth)),
            self._knowledge,
            self._settings,
            self._metrics,
            None if self._statistics is None else self._statistics.try_,
            target.sessions,
        )

    def _drafter(self, request: Request) -> RemoteDrafter | None:
        method = request.speculation.method
        if not method:
            return None
        features, wants_samples = self._cluster.features(method)
        return RemoteDrafter(
            self._cluster.draft_connector(method),
            method,
            request.request_id,
            request.prompt,
            request.sampling,
            len(request.prompt) + request.max_tokens,
            self._cluster.info.model.vocab_size,
            features,
            wants_samples,
        )
