"""The figures of growth, stall, soak and spinning, from times and samples given by hand."""

import os
from collections import Counter

import pytest

from benchmarks import growth, memory, orders, spinning, stall
from benchmarks.arrivals import Arrivals
from benchmarks.memory import Sample


def _seconds() -> dict[str, float]:
    rows = {f"int8 {rows}": 0.01 * index for index, rows in enumerate(growth.ROWS, start=1)}
    contexts = {f"int8 at {growth.SHORT}": 0.02, f"int8 at {growth.LONG}": 0.03}
    return {
        "transformers float32 sdpa": 0.05,
        "transformers bfloat16 sdpa": 0.04,
        **rows,
        **contexts,
    }


def test_passes_are_in_units_of_the_best_one_of_transformers() -> None:
    found = growth.figures(_seconds(), ["int8", "bfloat16"])
    assert found["unit_ms"] == pytest.approx(40.0)
    assert list(found["dtypes"]) == ["int8"], "a dtype that was not measured has no row"
    assert found["dtypes"]["int8"]["passes"]["1"] == pytest.approx(0.25)
    assert found["dtypes"]["int8"]["long_over_short"] == pytest.approx(1.5)


def test_growth_names_the_limits_that_are_missed() -> None:
    found = growth.figures(_seconds(), ["int8"])["dtypes"]
    found["int8"]["streams"] = {"1": 10.0, str(growth.STREAMS): 29.0}
    missed = [limit.name for limit in growth.limits(found) if not limit.kept]
    assert missed == ["int8, pass of 6 rows", "int8, pass of 12 rows", "int8, 8 streams over one"]


def _stream(*times: float) -> Arrivals:
    return Arrivals(0.0, list(times), [1] * len(times), list(range(len(times))))


def test_a_stall_is_the_largest_gap_until_the_long_prompt_is_answered() -> None:
    stream = _stream(1, 2, 3, 4, 6, 9, 10, 99)
    row = stall.gaps_around(stream, sent=4.0, answered=7.0)
    assert row == {"median_ms": 1000.0, "largest_ms": 3000.0, "ratio": 3.0}


def test_a_stream_that_ends_before_the_answer_says_nothing() -> None:
    with pytest.raises(stall.TooShort, match="5 ended too early"):
        stall.gaps_around(_stream(1, 2, 3, 4, 5), sent=4.0, answered=7.0)


def test_memory_grows_from_the_warm_median_to_that_of_the_end() -> None:
    sizes = [(0.0, 50), (0.2, 100), (0.25, 102), (0.3, 101), (0.6, 900), (0.95, 110), (1.0, 112)]
    samples = [Sample(share, {"target": mib}) for share, mib in sizes]
    warm, percent = memory.growth(samples, "target")
    assert warm == 101
    assert percent == pytest.approx((111 / 101 - 1) * 100)


def test_memory_that_was_not_sampled_warm_is_no_result() -> None:
    with pytest.raises(ValueError, match="more requests"):
        memory.growth([Sample(0.0, {"target": 1.0}), Sample(1.0, {"target": 1.0})], "target")


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (3, 4), (4, 4), (1000, 4), (9, 1)])
def test_few_samples_stand_for_many(count: int, most: int) -> None:
    samples = [Sample(index / 1000, {}) for index in range(count)]
    kept = memory.thinned(samples, most)
    assert len(kept) == min(count, most)
    assert len({sample.share for sample in kept}) == len(kept)
    if most > 1 and samples:
        assert (kept[0], kept[-1]) == (samples[0], samples[-1])


def test_this_process_has_resident_memory_and_an_ended_one_has_not() -> None:
    assert memory.resident_mib(os.getpid()) > 1
    with pytest.raises(ProcessLookupError, match="pid: 999999999"):
        memory.resident_mib(999_999_999)


def test_orders_have_every_kind_and_come_again_with_the_same_seed() -> None:
    asked = orders.make(400)
    assert asked == orders.make(400)
    assert asked != orders.make(400, seed=1)
    kinds = Counter(order.kind for order in asked)
    assert set(kinds) == set(orders.SHARES)
    assert all(abs(kinds[kind] / 400 - share) < 0.1 for kind, share in orders.SHARES.items())


def test_the_loss_is_what_turns_take_longer_than_the_same_alone() -> None:
    found = spinning.losses({"target": {"alone": [0.02, 0.02, 0.5], "in turns": [0.021]}})
    assert found["target"]["alone_ms"] == pytest.approx(20.0)
    assert found["target"]["loss_percent"] == pytest.approx(5.0)


def test_the_environments_differ_in_how_long_threads_spin() -> None:
    theirs, bare = spinning.environments().values()
    assert set(theirs) - set(bare) >= {"GOMP_SPINCOUNT"}
    assert bare["OMP_NUM_THREADS"] == theirs["OMP_NUM_THREADS"]
