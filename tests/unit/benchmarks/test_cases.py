"""Choice of engines, ratios, tables and limits of the side-by-side comparison."""

from typing import Any

import pytest

from benchmarks import cases
from benchmarks.compare import measured, peer_pythons, table
from benchmarks.report import Limit

FLOAT, HALF = "transformers float32 sdpa", "transformers bfloat16 eager"


def _result(rate: float, ids: list[int], first_s: float = 0.5) -> dict[str, Any]:
    times = [first_s + index / rate for index in range(len(ids))]
    text = {"started": 0.0, "times": times, "counts": [1] * len(ids), "ids": ids}
    return {"version": "1", "weights": "w", "load_s": 1.0, "texts": [text]}


def test_engines_are_chosen_by_engine_or_by_case_in_a_fixed_order() -> None:
    assert cases.choose([]) == list(cases.CASES)
    assert cases.choose(["openvino_genai", FLOAT]) == [FLOAT, "openvino genai"]


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ValueError, match="'vllm' is none of transformers, llama_cpp"):
        cases.choose(["vllm"])


def test_ratios_are_to_the_fastest_plain_case_of_transformers() -> None:
    rows = measured(
        {
            FLOAT: [_result(10.0, [1, 2, 3])],
            HALF: [_result(20.0, [1, 2, 3])],
            "transformers lookup": [_result(40.0, [1, 2, 3])],
            "outrider int8 plain": [_result(50.0, [1, 2, 9], first_s=0.25)],
        }
    )
    assert rows[FLOAT]["rate_ratio"] == pytest.approx(0.5)
    assert rows["outrider int8 plain"]["rate_ratio"] == pytest.approx(2.5)
    assert rows["outrider int8 plain"]["first_token_ratio"] == pytest.approx(0.5)


def test_texts_are_compared_with_those_of_float32() -> None:
    rows = measured({FLOAT: [_result(10.0, [1, 2, 3])], "llama.cpp": [_result(9.0, [1, 2, 9])]})
    assert (rows[FLOAT]["same_texts"], rows["llama.cpp"]["same_texts"]) == (1, 0)


def test_without_a_plain_case_there_is_no_ratio_and_no_limit() -> None:
    rows = measured({"outrider int8 plain": [_result(50.0, [1, 2])]})
    assert rows["outrider int8 plain"]["rate_ratio"] is None
    assert cases.limits(rows) == []
    assert table(rows, {}).row_count == 1


def test_the_median_round_counts() -> None:
    rounds = [_result(rate, [1, 2, 3]) for rate in (1.0, 30.0, 31.0)]
    assert measured({FLOAT: rounds})[FLOAT]["tokens_per_second"] == pytest.approx(30.0)


def test_limits_are_of_measured_cases_only_and_say_whether_they_are_kept() -> None:
    rows = measured(
        {FLOAT: [_result(10.0, [1, 2])], "outrider bfloat16 plain": [_result(18.0, [1, 2])]}
    )
    (limit,) = cases.limits(rows)
    assert limit.bound == 1.9
    assert not limit.kept
    assert Limit("", 1.9, 1.9, least=True).kept


def test_a_skipped_engine_stands_in_the_table_with_its_reason() -> None:
    made = table({}, {"llama.cpp": "skipped: llama_cpp is not installed"})
    assert list(made.columns[-1].cells) == ["skipped: llama_cpp is not installed"]


def test_interpreters_of_peers_are_read_and_others_refused() -> None:
    assert peer_pythons(["llama_cpp=/x/python"]) == {"llama_cpp": "/x/python"}
    with pytest.raises(ValueError, match="peer-python: 'outrider=/x'"):
        peer_pythons(["outrider=/x"])
    with pytest.raises(ValueError, match="peer-python: 'llama_cpp='"):
        peer_pythons(["llama_cpp="])
