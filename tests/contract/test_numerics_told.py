"""What a target knows of its own numbers reaches everyone who asks, and every text says it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from stack import NOISE, deployment, draft_model
from stack_models import VOCAB, encode, model, tokenizer
from target_server import SteeredModel, serving, tiny_target

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.profile import PassTime
from outrider.models.tokenizer import tokenizer_fingerprint
from outrider.serving.channels import connect
from outrider.serving.server import running
from outrider.v1 import target_pb2, target_pb2_grpc
from target_service import __main__ as program
from target_service.engine import Engine
from target_service.service import TargetService
from target_service.settings import TargetSettings
from tests.tiny import save_tiny, tiny_model


async def info_of(service: TargetService, settings: TargetSettings) -> target_pb2.TargetInfo:
    async with running(settings, service) as address, connect(address) as channel:
        stub = target_pb2_grpc.TargetStub(channel)  # type: ignore[no-untyped-call]
        return await stub.GetInfo(target_pb2.TargetInfoRequest(), timeout=10)


async def test_info_of_a_target_has_its_profile() -> None:
    settings = TargetSettings(listen="127.0.0.1:0", grace_s=0)
    engine = Engine(SteeredModel(tiny_target()), settings.engine_limits)  # type: ignore[arg-type]
    times = [PassTime(1, 64, 900), PassTime(64, 2048, 70_000)]
    info = await info_of(TargetService(engine, settings, times), settings)
    assert [(t.rows, t.context, t.forward_us) for t in info.profile] == [
        (1, 64, 900),
        (64, 2048, 70_000),
    ]


async def test_info_of_a_target_without_profile_or_self_check_says_so() -> None:
    async with serving() as server:
        info = await server.info()
    assert not info.profile
    assert info.model.numerics.self_check == "unchecked"


@pytest.mark.parametrize("flags", [[], ["--no-profile"]])
def test_the_target_checks_and_measures_itself_before_it_serves(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []

    async def serve(_: Any, service: Any) -> int:
        served.append(service)
        return 0

    save_tiny(tmp_path / "tiny", hidden=64)
    monkeypatch.setattr(program, "serve", serve)
    monkeypatch.setattr(program, "configure", lambda _: None)
    arguments = ["--model", str(tmp_path / "tiny"), "--dtype", "int8", *flags]
    monkeypatch.setattr("sys.argv", ["target_service", *arguments])
    assert program.main() == 0
    [service] = served
    assert service._engine.model.numerics.self_check == "exact"
    assert service._engine.model.numerics.quantization == "int8"
    assert service._engine.model.pool.used == 0
    assert bool(service._profile) == (not flags)


async def test_every_text_of_a_quantised_target_says_so() -> None:
    lm = CausalLM.from_model(
        tiny_model(vocab=VOCAB),
        name="tiny",
        tokenizer_fingerprint=tokenizer_fingerprint(tokenizer()),
        quantization="int8",
    )
    cache, text, pending = lm.new_cache(), list[int](), encode("Once")
    for _ in range(24):
        hidden = lm.forward([Segment.chain(cache, pending)])
        pending = [int(lm.logits(hidden.states[-1:]).argmax())]
        text += pending
    async with deployment(SteeredModel(lm, delay_s=0.003)) as stack:
        for k in (0, 4):
            speculative = {"n_max": k, "n_min": k}
            result = await stack.generate("Once", 24, ignore_eos=True, speculative=speculative)
            assert result.token_ids == text
            assert result.target_quantization == "int8"
            assert result.numerics.label == "int8"
            assert result.exact, "it is the quantised target's own text"
        assert (await stack.client.info()).model.numerics.quantised


@pytest.mark.parametrize(
    ("self_check", "exact"),
    [("exact", True), ("unchecked", True), ("inexact: number of rows", False)],
)
async def test_a_text_is_exact_only_where_the_targets_bits_are(
    self_check: str, exact: bool
) -> None:
    target = SteeredModel(model(), delay_s=0.003)
    target.numerics = dataclasses.replace(target.model.numerics, self_check=self_check)  # type: ignore[attr-defined]
    async with deployment(target, lambda: [draft_model("noisy", NOISE)]) as stack:
        result = await stack.generate("Once", 8)
    assert result.exact == exact
    assert result.numerics.self_check == self_check
    assert result.target_quantization == "none"
