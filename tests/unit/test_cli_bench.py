"""`outrider bench` against a fake orchestrator."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import grpc.aio
import pytest
import typer
from typer.testing import CliRunner

from outrider.cli.bench import bench
from outrider.cli.door import speculative
from outrider.cli.generate import generate
from outrider.cli.measure import SHAPES, Row, Setting, candidates, choose_methods, fastest
from outrider.results import (
    GenerationResult,
    Numerics,
    Speculation,
    Timings,
    Usage,
)
from outrider.v1 import orchestrator_pb2 as pb
from tests.contract.fake_orchestrator import FakeOrchestrator, replies

app = typer.Typer()
app.command()(generate)
app.command()(bench)
runner = CliRunner()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"question_id": n, "category": "even" if n % 2 == 0 else "odd", "turns": [f"q{n}"]}
        for n in range(4)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def text_of(tokens: int) -> GenerationResult:
    return GenerationResult(
        "",
        [0] * tokens,
        ["plain"] * tokens,
        "length",
        Usage(1, tokens),
        Speculation("", 0, 0, 0, 0, 0, 0, True),
        Timings(0, 0, 0, 0, 0, 0, 0, 0),
        "model",
        True,
        "id",
        Numerics("", "", "", "", ""),
    )


def run_bench(address: str, prompts: Path, *arguments: str) -> dict[str, object]:
    out = prompts.parent / "result.json"
    command = [
        "bench",
        "--address",
        address,
        "--prompts",
        str(prompts),
        "--out",
        str(out),
        *arguments,
    ]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def test_the_result_file_has_the_agreed_form(address: str, prompts: Path) -> None:
    result = run_bench(
        address, prompts, "--methods", "plain,ngram,draft_model", "--max-tokens", "6"
    )
    assert {"model", "dtype", "versions", "commit", "command_line", "machine"} <= set(result["run"])
    assert (result["run"]["model"], result["run"]["dtype"]) == ("fake", "float32")
    assert [method["method"] for method in result["methods"]] == ["plain", "ngram", "draft_model"]
    figures = {
        "tokens", "seconds", "tokens_per_second", "speedup", "acceptance_rate", "acceptance_length",
        "identical_to_plain", "prompts",
    }  # fmt: skip
    for method in result["methods"]:
        assert set(method) == figures | {"method", "categories"}
        assert set(method["categories"]) == {"even", "odd"}
        assert all(set(category) == figures for category in method["categories"].values())
        assert (method["prompts"], method["tokens"], method["categories"]["odd"]["prompts"]) == (
            4,
            24,
            2,
        )
        assert method["tokens_per_second"] == pytest.approx(24 / method["seconds"])
        assert method["acceptance_rate"] == pytest.approx(3 / 8)
    assert result["methods"][0]["speedup"] == 1.0


def test_the_speedup_is_the_median_of_ratios_per_prompt(address: str, prompts: Path) -> None:
    result = run_bench(address, prompts, "--methods", "ngram")
    rows = result["rows"]
    ratios = [
        plain["seconds"] / other["seconds"]
        for plain, other in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert result["methods"][1]["speedup"] == pytest.approx(statistics.median(ratios))


def test_methods_take_turns_on_a_prompt_that_each_has_seen_before(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    run_bench(address, prompts, "--methods", "ngram,draft_model", "--limit", "2")
    asked = [
        (request.chat.messages[0].content, request.speculative.method) for request in fake.requests
    ]
    methods = ["", "ngram", "draft_model"]
    turns = [[(prompt, method) for method in methods] for prompt in (b"q0", b"q1")]
    assert asked == [*turns[0], *turns[0], *turns[1], *turns[1]]
    assert [request.max_tokens for request in fake.requests[:6]] == [2] * 3 + [128] * 3


@pytest.mark.parametrize(("arguments", "depths"), [([], [0, 6, 4]), (["--k", "2"], [0, 2, 2])])
def test_k_defaults_to_each_drafters_own_depth(
    arguments: list[str], depths: list[int], address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    run_bench(address, prompts, "--methods", "plain,ngram,draft_model", "--limit", "1", *arguments)
    assert [request.speculative.n_max for request in fake.requests[-3:]] == depths
    assert [request.speculative.n_min for request in fake.requests[-3:]] == depths


def test_nodes_are_asked_for_where_they_are_named(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    result = run_bench(
        address, prompts, "--methods", "ngram", "--limit", "1", "--k", "2", "--nodes", "9"
    )
    assert fake.requests[-1].speculative.nodes_max == 9
    assert result["run"]["nodes"] == {"plain": None, "ngram": 9}  # type: ignore[index]


def test_tuning_tries_all_shapes_on_some_of_each_category(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    result = run_bench(address, prompts, "--methods", "ngram", "--tune", "1", "--max-tokens", "100")
    turn = 1 + len(SHAPES)
    tried = [*fake.requests[turn : 2 * turn], *fake.requests[3 * turn : 4 * turn]]
    assert {request.chat.messages[0].content for request in tried} == {b"q0", b"q1"}
    asked = [(r.speculative.n_max, r.speculative.nodes_max) for r in tried if r.speculative.method]
    assert asked == [*SHAPES, *SHAPES]
    assert {request.max_tokens for request in tried} == {64}
    assert len(result["rows"]) == 4 * 2  # type: ignore[arg-type]
    run = result["run"]
    assert (run["k"]["ngram"], run["nodes"]["ngram"]) in SHAPES  # type: ignore[index]


def test_the_fastest_setting_of_each_method_wins_over_all_prompts() -> None:
    settings = candidates(["plain", "eagle"])
    rows = [
        Row(prompt, "none", name, seconds, text_of(64), True, 1.0)
        for prompt, slow in (("p", 3.0), ("q", 1.0))
        for name in settings
        for seconds in [1.0 if name == "eagle 4/12" else slow]
    ]
    assert fastest(settings, rows) == {"plain": settings["plain"], "eagle": Setting("eagle", 4, 12)}


@pytest.mark.parametrize(
    ("arguments", "identical"),
    [
        (["--temperature", "0"], True),
        (["--temperature", "1", "--seed", "7"], True),
        (["--temperature", "1"], None),
    ],
)
def test_identity_is_told_only_where_it_is_defined(
    arguments: list[str], identical: bool | None, address: str, prompts: Path
) -> None:
    result = run_bench(address, prompts, "--methods", "ngram", *arguments)
    assert [method["identical_to_plain"] for method in result["methods"]] == [identical, identical]


def test_a_method_whose_text_differs_is_told_apart(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    calls = iter(range(100))

    async def differ(_: grpc.aio.ServicerContext) -> None:
        fake.replies[0].token_ids[0] = 7 if next(calls) == 7 else 1

    fake.faults = [_nothing] + [differ] * 100
    result = run_bench(address, prompts, "--methods", "ngram")
    assert [method["identical_to_plain"] for method in result["methods"]] == [True, False]
    assert [row["identical_to_plain"] for row in result["rows"]].count(False) == 1


async def _nothing(_: grpc.aio.ServicerContext) -> None:
    """The first call is GetInfo."""


def test_plain_rounds_leave_acceptance_undefined(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    fake.replies = replies()
    fake.replies[-1].summary.speculation.CopyFrom(pb.SpeculationReport(passes=5))
    result = run_bench(address, prompts, "--methods", "plain")
    assert result["methods"][0]["acceptance_rate"] is None
    assert result["methods"][0]["acceptance_length"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--methods", "plain,medusa"],
            "methods: 'medusa' is not served; served are plain, draft_model, ngram",
        ),
        (["--out", "/no/such/folder/result.json"], "out: /no/such/folder is not a folder"),
        (["--prompts", "/no/such/file.jsonl"], "/no/such/file.jsonl"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], message: str, address: str, prompts: Path
) -> None:
    done = runner.invoke(
        app, ["bench", "--address", address, "--prompts", str(prompts), *arguments]
    )
    assert done.exit_code == 1
    assert message in done.stderr


def test_plain_always_comes_first_and_nothing_twice() -> None:
    assert choose_methods(["ngram", "plain", "ngram"], ["ngram"]) == ["plain", "ngram"]


@pytest.mark.parametrize(
    ("method", "k", "block"),
    [
        (None, None, None),
        ("plain", 4, {"n_max": 0}),
        ("ngram", 0, {"n_max": 0}),
        ("ngram", None, {"method": "ngram"}),
        (None, 4, {"n_max": 4, "n_min": 4}),
    ],
)
def test_method_and_k_become_a_speculative_block(
    method: str | None, k: int | None, block: object
) -> None:
    assert speculative(method, k) == block
