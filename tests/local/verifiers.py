"""Two Verifiers in this process: over the target's session and step, and over its engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import numpy as np

from orchestrator.peers import RunTokens
from outrider.core.round import Commit, Evidence, Features, Ids, SamplingParams
from outrider.core.tree import TokenTree
from outrider.drafting.base import FeatureSpec
from outrider.models.causal_lm import CausalLM
from target_service import schedule
from target_service.engine import Engine
from target_service.session import FeatureRequest, FreeRun, Session
from target_service.step import Outcome, Work, run
from tests.local.memo_lm import MemoLM, as_model
from tests.local.together import Together


class LocalTarget:
    """Steps of a model over whatever its sessions ask for in one turn of the event loop.

    model: a `CausalLM` where features are asked for.
    rng: where unseeded samples come from; fixed, so that a test gives the same result every time.
    """

    def __init__(self, model: MemoLM | CausalLM, seed: int = 0) -> None:
        self.model = model
        self.rng = np.random.default_rng([seed, 1])
        self.step = Together[Work, Outcome](lambda works: run(as_model(model), works).outcomes)

    def open(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        max_tokens: int,
        lag: int = 0,
        features: FeatureSpec | None = None,
    ) -> LocalVerifier:
        """A session; a free run commits `lag` more tokens behind a Halt."""
        cache = as_model(self.model).new_cache()
        wanted = None if features is None else FeatureRequest(features.taps, features.window)
        end = len(prompt) + max_tokens
        session = Session("", list(prompt), sampling, cache, end, features=wanted, rng=self.rng)
        return LocalVerifier(self, session, lag)


class LocalVerifier:
    """A session, advanced and checked by the target's own code."""

    round_bytes = 0

    def __init__(self, target: LocalTarget, session: Session, lag: int) -> None:
        self.session = session
        self.halts = 0
        self._features: list[Features] = []
        self._target = target
        self._lag = lag
        self._left: int | None = None

    async def prefill(self) -> Evidence:
        tokens = self.session.tokens
        tree = TokenTree.root_only(tokens[-1])
        return await self._pass(Work(self.session, tokens, range(-1, len(tokens) - 1), tree), tree)

    async def verify(
        self,
        base_len: int,
        commit: Commit | None,
        tree: TokenTree,
        supports: Mapping[int, Ids],
        tree_exact: bool,
    ) -> Evidence:
        self.session.advance(self.session.round + 1, base_len, commit, tree.tokens[0])
        self.session.check_room(tree, self._target.model.context_length)
        return await self._pass(
            Work(self.session, tree.tokens, tree.parents, tree, supports, tree_exact), tree
        )

    async def free_run(
        self,
        base_len: int,
        commit: Commit | None,
        root: int,
        max_tokens: int,
        stop_ids: Sequence[int],
    ) -> AsyncGenerator[RunTokens, None]:
        session = self.session
        session.advance(session.round + 1, base_len, commit, root)
        session.free_run = FreeRun(base_len + max_tokens, frozenset(stop_ids), base_len)
        self._left = None
        while self._left != 0:
            tree = TokenTree.root_only(session.tokens[-1])
            outcome = await self._target.step(Work(session, tree.tokens, tree.parents, tree))
            session.tokens.append(outcome.samples[0])
            self._left = None if self._left is None else self._left - 1
            ended = session.tokens[-1] in stop_ids or session.base_len >= session.free_run.end
            yield RunTokens(outcome.samples, features=outcome.features)
            if ended:
                break
        session.free_run = None

    async def want_features(self) -> None:
        """They came from the start."""

    async def halt(self) -> None:
        self.halts += 1
        self._left = self._lag

    def take_features(self) -> list[Features]:
        taken, self._features = self._features, []
        return taken

    async def _pass(self, work: Work, tree: TokenTree) -> Evidence:
        outcome = await self._target.step(work)
        self.session.tree = tree
        if outcome.prompt_features is not None:
            self._features.append(outcome.prompt_features)
        return Evidence(
            outcome.samples, outcome.nodes, features=outcome.features, walked=outcome.walked
        )


class EngineVerifier:
    """A session of the target's engine, with its thread, its schedule and its batching."""

    round_bytes = 0

    def __init__(
        self, engine: Engine, prompt: Sequence[int], sampling: SamplingParams, max_tokens: int
    ) -> None:
        self.session = engine.open("", prompt, sampling, max_tokens, None)
        self._engine = engine

    async def prefill(self) -> Evidence:
        return await self._engine.verify(
            self.session, TokenTree.root_only(self.session.tokens[-1]), {}
        )

    async def verify(
        self,
        base_len: int,
        commit: Commit | None,
        tree: TokenTree,
        supports: Mapping[int, Ids],
        tree_exact: bool,
    ) -> Evidence:
        self.session.advance(self.session.round + 1, base_len, commit, tree.tokens[0])
        self.session.check_room(tree, self._engine.model.context_length)
        return await self._engine.verify(self.session, tree, supports, tree_exact)

    async def free_run(
        self,
        base_len: int,
        commit: Commit | None,
        root: int,
        max_tokens: int,
        stop_ids: Sequence[int],
    ) -> AsyncGenerator[RunTokens, None]:
        self.session.advance(self.session.round + 1, base_len, commit, root)
        heard: asyncio.Queue[schedule.RunTokens | BaseException] = asyncio.Queue()
        state = FreeRun(base_len + max_tokens, frozenset(stop_ids), base_len)
        self._engine.free_run(self.session, state, heard.put_nowait, heard.put_nowait)
        ended = False
        while not ended:
            told = await heard.get()
            if isinstance(told, BaseException):
                raise told
            ended = told.ended
            if told.tokens:
                yield RunTokens(told.tokens, features=told.features)
                self._engine.acknowledge(self.session, told.base_len)

    async def want_features(self) -> None:
        """None are wanted here."""

    async def halt(self) -> None:
        self._engine.halt(self.session)

    def take_features(self) -> list[Features]:
        return []

    def close(self) -> None:
        self._engine.close(self.session)
