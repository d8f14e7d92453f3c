"""`outrider generate` and `info`, and what the commands refuse, against a fake orchestrator."""

from __future__ import annotations

import grpc.aio
import pytest
import typer
from typer.testing import CliRunner

from outrider.cli.bench import bench
from outrider.cli.generate import generate
from outrider.cli.info import info
from tests.contract.fake_orchestrator import FakeOrchestrator, abort

app = typer.Typer()
app.command()(generate)
app.command()(bench)
app.command()(info)
runner = CliRunner()


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


def test_generate_sends_where_a_text_ends(address: str, fake: FakeOrchestrator) -> None:
    arguments = ["--stop", ".", "--stop", "\n\n", "--ignore-eos", "--min-p", "0.05"]
    done = runner.invoke(app, ["generate", "hi", "--address", address, *arguments])
    assert done.exit_code == 0, done.output
    [request] = fake.requests
    assert list(request.stop) == [".", "\n\n"]
    assert request.ignore_eos
    assert request.sampling.min_p == pytest.approx(0.05)


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
        ("--min-p", "-0.5", "0 to 1"),
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


@pytest.mark.parametrize(
    ("option", "told"),
    [("--dtype=int8", "dtype: 'int8'"), ("--drafter=ngram", "drafters: ['ngram']")],
)
def test_what_an_own_cluster_serves_cannot_be_asked_of_one_that_runs(
    option: str, told: str
) -> None:
    done = runner.invoke(app, ["generate", "hi", "--address", "127.0.0.1:1", option])
    assert done.exit_code == 1
    assert f"{told} is for a cluster that this command starts" in done.stderr


def test_info_shows_what_is_served(address: str) -> None:
    done = runner.invoke(app, ["info", "--address", address], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    for told in ("model", "numbers", "methods", "draft_model", "context length"):
        assert told in done.stdout


def test_info_of_nobody_is_an_error() -> None:
    done = runner.invoke(app, ["info", "--address", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert "error: " in done.stderr
