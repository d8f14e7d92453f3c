"""The load test's figures, from samples made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest import report
from loadtest.report import Sample
from outrider.results import Speculation


def sample(
    started: float = 0.0, total_s: float = 2.0, tokens: int = 11, **changes: object
) -> Sample:
    told = Speculation("ngram", 4, 16, 6, 10, 8, 0, True, [6, 6], [3, 3])
    return Sample(started, total_s, 1.0, tokens, replace(told, **changes))  # type: ignore[arg-type]


def test_time_per_output_token_leaves_the_first_token_out() -> None:
    assert sample().per_token_s == pytest.approx(0.1)
    assert sample(tokens=1).per_token_s is None


def test_throughput_counts_from_the_first_request_to_the_end_of_the_last() -> None:
    figures = report.summarise([sample(5.0), sample(6.0, total_s=3.0)], failures={"refused": 1})
    assert figures.tokens_per_second == pytest.approx(22 / 4)
    assert (figures.requests, figures.failures, figures.method) == (2, 1, "ngram")


def test_the_end_of_a_run_where_users_leave_one_by_one_does_not_count() -> None:
    # Of 11 tokens one comes at 1 s and ten up to 2 s; half of those lie within 1.5 s.
    figures = report.summarise([sample(), sample(total_s=2.0)], failures={}, longest_s=1.5)
    assert figures.tokens == pytest.approx(2 * 6)
    assert figures.tokens_per_second == pytest.approx(12 / 1.5)


def test_a_request_of_one_token_counts_where_the_token_lies() -> None:
    one = sample(tokens=1, total_s=1.0)
    assert one.tokens_within(0.0, 2.0) == 1.0
    assert one.tokens_within(1.5, 2.0) == 0.0
    assert sample(tokens=0).tokens_within(0.0, 9.0) == 0.0


def test_acceptance_is_pooled_over_requests_not_averaged() -> None:
    second = sample(drafted=4, accepted=4, rounds=1, emitted=5)
    figures = report.summarise([sample(), second], failures={})
    assert figures.acceptance_rate == pytest.approx(10 / 20)
    assert figures.acceptance_length == pytest.approx(15 / 5)


def test_k_is_the_mean_over_passes_and_follows_the_seconds() -> None:
    later = sample(2.0, drafted_per_position=[])
    figures = report.summarise([sample(), later], failures={})
    assert figures.k == pytest.approx(12 / 16)
    assert figures.k_by_second == pytest.approx([1.5, 1.5, 0.0, 0.0])


def test_plain_runs_have_no_acceptance() -> None:
    plain = sample(drafted=0, accepted=0, rounds=0, emitted=0, method="")
    figures = report.summarise([plain], failures={})
    assert (figures.method, figures.acceptance_rate, figures.acceptance_length) == (
        "plain",
        None,
        None,
    )


def test_a_run_without_a_single_answer_still_has_figures() -> None:
    figures = report.summarise([], failures={"refused": 2, "lost": 1})
    assert (figures.tokens_per_second, figures.failures, figures.k) == (0.0, 3, None)
    assert figures.first_token_ms == report.Percentiles(None, None)


def test_depths_of_a_response_are_those_of_its_rounds() -> None:
    told = Speculation("ngram", 3, 7, 2, 5, 9, 0, True, [3, 3, 1], [2, 0, 0])
    made = Sample(0.0, 1.0, 0.1, 5, told)
    assert made.depths == 7
    assert made.k == pytest.approx(7 / 9)


def test_samples_survive_the_way_through_the_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    report.write_samples(path, [sample()], failures={"refused": 2})
    assert report.read_samples(path) == ([sample()], {"refused": 2})
