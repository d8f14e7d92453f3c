"""`outrider generate` and `outrider bench` against a fake orchestrator."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest
import typer
from typer.testing import CliRunner

from outrider.cli.bench import bench
from outrider.cli.door import speculative
from outrider.cli.generate import generate
from outrider.cli.measure import choose_methods
from outrider.serving.server import running
from outrider.serving.settings import ServiceSettings
from outrider.v1 import orchestrator_pb2 as pb
from tests.contract.fake_orchestrator import FakeOrchestrator, abort, replies

app = typer.Typer()
app.command()(generate)
app.command()(bench)
runner = CliRunner()


@pytest.fixture
def fake() -> FakeOrchestrator:
    return FakeOrchestrator()


@pytest.fixture
def address(fake: FakeOrchestrator) -> Iterator[str]:
    """The commands need the main thread, so the server has another."""
    loop, ready, addresses = asyncio.new_event_loop(), threading.Event(), []
    ended = asyncio.Event()

    async def serve() -> None:
        async with running(ServiceSettings(grace_s=0), fake) as bound:
            addresses.append(bound)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(10)
    yield addresses[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"question_id": n, "category": "even" if n % 2 == 0 else "odd", "turns": [f"q{n}"]}
        for n in range(4)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_generate_prints_the_text_alone_and_a_summary_beside_it(
    address: str, fake: FakeOrchestrator
) -> None:
    done = runner.invoke(
        app, ["generate", "hi", "--address", address, "--max-tokens", "6", "--seed", "3"]
    )
    assert done.exit_code == 0
    assert done.stdout == "abcdef\n"
    assert "6 tokens in" in done.stderr
    assert "ngram: 2 rounds, acceptance rate 0.38, acceptance length 2.50; exact" in done.stderr
    [request] = fake.requests
    assert (request.prompt, request.max_tokens, request.sampling.seed) == (b"hi", 6, 3)
    assert not request.HasField("speculative")


def test_generate_sends_method_k_and_chat(address: str, fake: FakeOrchestrator) -> None:
    arguments = [
        "--address",
        address,
        "--chat",
        "--method",
        "ngram",
        "--k",
        "3",
        "--temperature",
        "0",
    ]
    assert runner.invoke(app, ["generate", "hi", *arguments]).exit_code == 0
    [request] = fake.requests
    assert request.chat.messages[0].content == b"hi"
    assert (request.speculative.method, request.speculative.n_max, request.speculative.n_min) == (
        "ngram",
        3,
        3,
    )
    assert request.sampling.temperature == 0.0


@pytest.mark.parametrize(("quantization", "said"), [("none", False), ("int8", True)])
def test_the_summary_says_where_the_target_is_quantised(
    address: str, fake: FakeOrchestrator, quantization: str, said: bool
) -> None:
    fake.replies[-1].summary.numerics.quantization = quantization
    done = runner.invoke(app, ["generate", "hi", "--address", address])
    assert done.exit_code == 0
    assert ("exact; int8 target" in done.stderr) == said


def test_tokens_are_coloured_by_kind_below_a_legend(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "outrider.cli.generate._decoder", lambda *_: lambda ids: "".join("_abcdef"[i] for i in ids)
    )
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    done = runner.invoke(app, ["generate", "hi", "--address", address, "--show-tokens"], color=True)
    legend, text = done.stdout.splitlines()
    for kind, colour in (("accepted", 32), ("recovered", 33), ("bonus", 36)):
        assert f"\x1b[{colour}m{kind}\x1b[0m" in legend
    green, yellow, cyan = (
        f"\x1b[{colour}m{letter}\x1b[0m" for colour, letter in ((32, "b"), (33, "f"), (36, "d"))
    )
    assert text.index(green) < text.index(cyan) < text.index(yellow)


def test_tokens_are_bracketed_by_kind_where_there_are_no_colours(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "outrider.cli.generate._decoder", lambda *_: lambda ids: "".join("_abcdef"[i] for i in ids)
    )
    for setting in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(setting, raising=False)
    command = ["generate", "hi", "--address", address, "--show-tokens"]
    marked = ["[accepted] <recovered> {bonus} plain", "a[b][c]{d}[e]<f>"]
    assert runner.invoke(app, command).stdout.splitlines() == marked
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert runner.invoke(app, command, color=True).stdout.splitlines() == marked


def test_the_help_says_which_turn_is_measured() -> None:
    done = runner.invoke(app, ["bench", "--help"], env={"COLUMNS": "200"})
    assert "of several turns, the first" in done.stdout


def test_an_error_of_the_server_ends_the_command_with_its_message(
    address: str, fake: FakeOrchestrator
) -> None:
    fake.faults = [abort(grpc.StatusCode.INVALID_ARGUMENT, "max_tokens: 0, limit at least 1")]
    done = runner.invoke(app, ["generate", "hi", "--address", address, "--max-tokens", "0"])
    assert done.exit_code == 1
    assert "error: max_tokens: 0, limit at least 1" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("--top-k", "-1", "0 to 4294967295"),
        ("--top-p", "1.5", "0 to 1"),
        ("--temperature", "-0.1", "at least 0"),
        ("--temperature", "nan", "at least 0"),
        ("--seed", str(2**64), f"0 to {2**64 - 1}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_option_value_and_limit_before_anything_starts(
    option: str, value: str, limit: str
) -> None:
    done = runner.invoke(app, ["generate", "hi", option, value])
    assert done.exit_code == 1
    assert done.stderr == f"error: {option}: {value}, limit {limit}\n"


def test_plaintext_to_another_machine_must_be_allowed() -> None:
    done = runner.invoke(app, ["generate", "hi", "--address", "10.0.0.1:50050"])
    assert done.exit_code == 1
    assert "'10.0.0.1:50050' is not loopback" in done.stderr


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


def test_methods_take_turns_behind_one_warm_up_each(
    address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    run_bench(address, prompts, "--methods", "ngram,draft_model", "--limit", "2")
    asked = [
        (request.chat.messages[0].content, request.speculative.method) for request in fake.requests
    ]
    methods = ["", "ngram", "draft_model"]
    warm_up, measured = asked[:3], asked[3:]
    assert warm_up == [(b"q0", method) for method in methods]
    assert measured == [(prompt, method) for prompt in (b"q0", b"q1") for method in methods]


@pytest.mark.parametrize(("arguments", "depths"), [([], [0, 6, 4]), (["--k", "2"], [0, 2, 2])])
def test_k_defaults_to_each_drafters_own_depth(
    arguments: list[str], depths: list[int], address: str, prompts: Path, fake: FakeOrchestrator
) -> None:
    run_bench(address, prompts, "--methods", "plain,ngram,draft_model", "--limit", "1", *arguments)
    assert [request.speculative.n_max for request in fake.requests[-3:]] == depths
    assert [request.speculative.n_min for request in fake.requests[-3:]] == depths


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
        fake.replies[0].token_ids[0] = 7 if next(calls) == 5 else 1

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
