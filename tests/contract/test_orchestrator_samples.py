"""What goes back to the drafters over real sockets: samples, budgets, and under whose name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from draft_server import open_message, serving
from stack import deployment, draft_model, fixed
from stack_models import CycleModel, encode, greedy, model

from draft_service.drafters.auto import AutoDrafter
from draft_service.drafters.draft_model import DraftModelDrafter
from orchestrator.report import Report
from outrider.core.round import Budget, Features, Proposal
from outrider.core.tree import TokenTree
from outrider.drafting.base import Drafter, DraftSession
from outrider.drafting.lookahead import LookaheadDrafter
from outrider.drafting.ngram import NgramDrafter
from outrider.v1 import draft_pb2

CYCLE = "".join(map(chr, range(33, 127)))
NEXT = dict(zip(encode(CYCLE), encode(CYCLE[1:] + CYCLE[0]), strict=True))


class Recorder(Drafter):
    """Proposes a right and a wrong child, one below each, and keeps what comes back."""

    method = "recorder"
    recommended_depth = 2
    recommended_nodes = 4
    wants_samples = True

    def __init__(self) -> None:
        self.budgets: list[Budget] = []
        self.answered: list[tuple[TokenTree, Sequence[int]]] = []

    def observe(
        self,
        session: DraftSession,
        new_tokens: Sequence[int],
        features: Sequence[Features] = (),
        samples: Sequence[int] = (),
    ) -> None:
        super().observe(session, new_tokens)
        if session.state is not None:
            self.answered.append((session.state, samples))
            session.state = None

    def propose(self, batch: Sequence[tuple[DraftSession, Budget]]) -> list[Proposal]:
        return [self._one(session, budget) for session, budget in batch]

    def _one(self, session: DraftSession, budget: Budget) -> Proposal:
        self.budgets.append(budget)
        root = session.tokens[-1]
        right = NEXT.get(root, 40)
        tree = TokenTree((root, right, 50, 60, 70), (-1, 0, 0, 1, 2))
        if budget.depth < 2:
            return self._empty(session)
        session.state = tree
        return Proposal(tree, self.method)


async def test_samples_of_every_node_reach_the_drafter_with_the_next_request() -> None:
    recorder = Recorder()
    target = CycleModel(CYCLE, delay_s=0.003)
    async with deployment(target, lambda: [recorder]) as stack:
        recorder.budgets.clear()  # the warm-up's
        result = await stack.client.generate(
            "!", max_tokens=80, temperature=0.0, ignore_eos=True, speculative=fixed(2)
        )
    assert result.speculation.rounds > 20
    assert len(recorder.answered) >= 20
    for tree, samples in recorder.answered:
        assert list(samples) == [NEXT[token] for token in tree.tokens]
    assert (recorder.budgets[0].depth, recorder.budgets[0].nodes) == (2, 4)
    assert max(result.speculation.drafted_per_position) == result.speculation.rounds
    assert result.speculation.drafted == 4 * result.speculation.rounds


async def test_info_tells_recommended_nodes() -> None:
    async with deployment(drafters=lambda: [Recorder(), NgramDrafter()]) as stack:
        info = await stack.client.info()
        assert info.recommended_nodes == {"recorder": 4, "ngram": 0}
        told = await stack.drafts[0].info()
        assert [drafter.recommended_nodes for drafter in told.drafters] == [4, 0]
        assert [drafter.wants_samples for drafter in told.drafters] == [True, False]


async def test_drawn_drafts_have_no_samples_to_tell() -> None:
    """top_k leaves no mass outside q~: the target's sample there is none at all."""
    heard: list[Sequence[int]] = []

    class Curious(DraftModelDrafter):
        wants_samples = True

        def observe(
            self,
            session: DraftSession,
            new_tokens: Sequence[int],
            features: Sequence[Features] = (),
            samples: Sequence[int] = (),
        ) -> None:
            heard.append(samples)
            super().observe(session, new_tokens)

    async with deployment(drafters=lambda: [Curious(model(0.004))]) as stack:
        result = await stack.generate(tokens=64, temperature=1.0, top_k=2, ignore_eos=True)
    assert len(result.token_ids) == 64
    assert result.speculation.rounds > 5
    assert len(heard) > 5
    assert all(len(samples) <= 1 for samples in heard)


async def test_lookahead_finds_text_that_was_never_there_by_the_targets_answers() -> None:
    """No token of the text comes twice: without its samples no guess could be right."""
    target = CycleModel(CYCLE, delay_s=0.003)
    prompt = "".join(CYCLE[place] for place in (60, 20, 40, 0))
    async with deployment(target, lambda: [LookaheadDrafter()]) as stack:
        result = await stack.client.generate(
            prompt, max_tokens=80, temperature=0.0, speculative=fixed(4)
        )
    assert result.token_ids == encode(CYCLE[1:81])
    assert result.speculation.accepted > 0


@pytest.mark.parametrize("method", ["lookahead", "auto"])
@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 0.9, "seed": 5}], ids=["greedy", "seeded"]
)
@pytest.mark.parametrize("nodes", [4, 12])
async def test_text_is_that_of_plain_decoding(
    method: str, options: dict[str, Any], nodes: int
) -> None:
    def drafters() -> list[Drafter]:
        each = [NgramDrafter(), LookaheadDrafter(), draft_model("noisy", 0.004)]
        return [*each, AutoDrafter(each)]

    speculative = fixed(4, method, nodes_max=nodes)
    async with deployment(drafters=drafters) as stack:
        plain = await stack.generate("Once", 64, ignore_eos=True, **options, speculative=fixed(0))
        result = await stack.generate(
            "Once", 64, ignore_eos=True, **options, speculative=speculative
        )
    assert result.token_ids == plain.token_ids
    assert plain.speculation.method == "plain"
    assert result.speculation.method == method
    assert result.speculation.rounds > 0


async def test_rounds_of_auto_are_booked_under_the_method_that_proposed() -> None:
    class Statistics:
        def book(self, report: Report, class_: str) -> None:
            booked.append(report)

        def try_(self, method: str, class_: str, asked: int, kept: int) -> None:
            pass

        async def stop(self) -> None:
            pass

    booked: list[Report] = []
    each: list[Drafter] = [NgramDrafter(), draft_model("same")]
    async with deployment(drafters=lambda: [*each, AutoDrafter(each)]) as stack:
        stack.service._statistics = Statistics()  # type: ignore[assignment]
        result = await stack.generate(tokens=200, ignore_eos=True, speculative=fixed(4, "auto"))
    assert tuple(result.token_ids) == greedy("Once", 200)
    (report,) = booked
    assert {"same"} <= set(report.by_method) <= {"same", "ngram"}
    assert sum(counts["rounds"] for counts in report.by_method.values()) == report.rounds


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([1] * 66, "request.samples: length: 66, limit 0 to 65"),
        ([1, 100], "request.samples"),
    ],
)
async def test_samples_that_cannot_be_are_refused(samples: list[int], message: str) -> None:
    async with serving() as server:
        call = server.stream()
        await call.write(open_message())
        assert (await call.read()).WhichOneof("message") == "ready"
        request = draft_pb2.DraftRequest(
            round=1, base_len=3, samples=samples, budget=draft_pb2.Budget(depth=2, nodes=2, m=8)
        )
        await call.write(draft_pb2.DraftMessage(request=request))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert message in (error.value.details() or "")
