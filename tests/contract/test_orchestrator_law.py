"""The law of what is emitted over gRPC: the first three tokens have the target's joint law."""

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
import torch
from stack import deployment, draft_model
from stack_models import model
from target_server import SteeredModel

from outrider.v1 import orchestrator_pb2 as pb
from outrider.v1 import types_pb2
from tests.local.laws import g_test, joint_law
from tests.tiny import tiny_model

VOCAB = 8
PROMPT = [1, 2, 3]
# Whole requests, each of which costs some 10 ms: a slice, and as many as the grid of one process.
SLICE, WHOLE = 1_200, 20_000
IN_FLIGHT = 8
SHAPE = {"vocab": VOCAB, "layers": 1, "hidden": 32}
LEAST_P, CONTROL_P = 1e-4, 1e-6


@functools.cache
def law(temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """P [8, 8, 8] from transformers' own forward."""
    plain = tiny_model(**SHAPE)

    def next_law(tokens: Sequence[int]) -> npt.NDArray[np.float64]:
        with torch.no_grad():
            logits = plain(torch.tensor([tokens])).logits[0, -1].double()
        return np.asarray((logits / temperature).softmax(-1))

    return joint_law(next_law, PROMPT, VOCAB, 3)


@dataclass
class Sample:
    """What many requests brought; kinds of their second token."""

    counts: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((VOCAB,) * 3))
    kinds: Counter[int] = field(default_factory=Counter)
    accepted: int = 0
    drafted: int = 0


async def sample(nodes_max: int, samples: int) -> Sample:
    """Unseeded requests at temperature 1, K=2; the target waits until the drafter is ready."""
    got = Sample()
    request = pb.GenerateRequest(
        prompt_token_ids=pb.TokenIds(ids=PROMPT),
        max_tokens=4,
        ignore_eos=True,
        sampling=types_pb2.SamplingParams(temperature=1.0),
        speculative=pb.Speculative(n_max=2, n_min=2, nodes_max=nodes_max),
    )
    target = SteeredModel(model(**SHAPE), delay_s=0.02)
    numbers = iter(range(samples))

    async with deployment(target, lambda: [draft_model("noisy", 0.1, **SHAPE)], support=4) as stack:

        async def worker() -> None:
            for _ in numbers:
                replies = [reply async for reply in stack.stub.Generate(request, timeout=60)]
                tokens = [token for reply in replies for token in reply.token_ids]
                kinds = [kind for reply in replies for kind in reply.kinds]
                got.counts[tuple(tokens[:3])] += 1
                got.kinds[kinds[1]] += 1
                got.accepted += replies[-1].summary.speculation.accepted
                got.drafted += replies[-1].summary.speculation.drafted

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return got


@pytest.mark.parametrize("nodes_max", [2, 5], ids=["chain", "tree"])
@pytest.mark.parametrize(
    "samples",
    [
        SLICE,
        pytest.param(WHOLE, marks=[pytest.mark.full, pytest.mark.timeout(3600)]),
    ],
)
async def test_joint_law_of_the_first_three_tokens_is_the_targets(
    nodes_max: int, samples: int
) -> None:
    got = await sample(nodes_max, samples)
    assert got.counts.sum() == samples
    assert g_test(got.counts, law()) > LEAST_P
    assert g_test(got.counts, law(1.3)) < CONTROL_P  # the test can tell
    plain = got.kinds[pb.TOKEN_KIND_PLAIN]
    assert plain < 0.5 * samples, "the second token must come from a round"
    assert got.kinds[pb.TOKEN_KIND_ACCEPTED] > 0.15 * samples
    assert got.kinds[pb.TOKEN_KIND_RECOVERED] > 0.1 * samples
    assert 0 < got.accepted < got.drafted
