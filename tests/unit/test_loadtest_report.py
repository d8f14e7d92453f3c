"""The load test's figures, from samples made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest import report
from loadtest.report import Sample


def sample(
    started: float = 0.0, total_s: float = 2.0, tokens: int = 11, **changes: object
) -> Sample:
    fields = {"first_token_s": 1.0, "method": "ngram"}
    counts = {"rounds": 4, "drafted": 16, "accepted": 6, "emitted": 10}
    changed = {**fields, **counts, **changes}
    return Sample(started=started, total_s=total_s, tokens=tokens, **changed)  # type: ignore[arg-type]


def test_time_per_output_token_leaves_the_first_token_out() -> None:
    assert sample().per_token_s == pytest.approx(0.1)
    assert sample(tokens=1).per_token_s is None


def test_throughput_counts_from_the_first_request_to_the_end_of_the_last() -> None:
    cell = report.summarise(2, True, [sample(5.0), sample(6.0, total_s=3.0)], failures=1)
    assert cell.tokens_per_second == pytest.approx(22 / 4)
    assert (cell.requests, cell.failures, cell.method) == (2, 1, "ngram")


def test_acceptance_is_pooled_over_requests_not_averaged() -> None:
    second = sample(drafted=4, accepted=4, rounds=1, emitted=5)
    cell = report.summarise(1, True, [sample(), second], failures=0)
    assert cell.acceptance_rate == pytest.approx(10 / 20)
    assert cell.acceptance_length == pytest.approx(15 / 5)


def test_plain_runs_have_no_acceptance() -> None:
    cell = report.summarise(
        1, False, [sample(drafted=0, accepted=0, rounds=0, emitted=0)], failures=0
    )
    assert (cell.method, cell.acceptance_rate, cell.acceptance_length) == ("plain", None, None)


def test_a_run_without_a_single_answer_still_has_a_line() -> None:
    cell = report.summarise(8, True, [], failures=3)
    assert cell.tokens_per_second == 0.0
    assert cell.first_token_ms == report.Percentiles(None, None)
    assert report.table([cell]).row_count == 1


def test_samples_survive_the_way_through_the_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    report.write_samples(path, [sample()], failures=2)
    assert report.read_samples(path) == ([sample()], 2)
