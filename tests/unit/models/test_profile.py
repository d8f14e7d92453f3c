"""The profile has every size for which there is room and time."""

from __future__ import annotations

from outrider.models.profile import MOST_ROUNDS, ROWS, profile
from tests.tiny import tiny_llama


class Clock:
    """Each look takes `step` seconds."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_the_profile_has_the_least_time_of_each_size_within_the_context() -> None:
    lm = tiny_llama(64)
    times = profile(lm, budget_s=1e9, clock=Clock(0.5))
    assert [(t.rows, t.context) for t in times] == [(rows, 64) for rows in ROWS], "512 is the limit"
    assert {t.forward_us for t in times} == {500_000}
    assert lm.pool.used == 0


def test_a_slow_model_is_measured_as_far_as_the_time_goes() -> None:
    lm = tiny_llama(64)
    clock = Clock(0.5)
    times = profile(lm, budget_s=3.0, clock=clock)
    assert [t.rows for t in times] == [1, 2]
    assert clock.now < 3.0 + 4 * 0.5
    assert lm.pool.used == 0


def test_the_number_of_rounds_is_bounded() -> None:
    clock = Clock(0.5)
    profile(tiny_llama(64), budget_s=1e9, clock=clock)
    assert clock.now == 0.5 * (1 + 3 * MOST_ROUNDS * len(ROWS))


def test_passes_that_something_disturbed_do_not_count() -> None:
    """Three of five rounds take ten times as long, as where another service loads its models."""

    class Disturbed(Clock):
        calls = 0

        def __call__(self) -> float:
            self.calls += 1
            self.now += 5.0 if self.calls <= 1 + 3 * 3 * len(ROWS) else 0.5
            return self.now

    times = profile(tiny_llama(64), budget_s=1e9, clock=Disturbed(0.5))
    assert {t.forward_us for t in times} == {500_000}
