"""What a round's parts take, learnt from the rounds themselves. All times are in microseconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log2

FAST = 0.2
SLOW = 0.05
KEPT = 64
RIDGE = 0.5
# Of VerifyCost, in units of the variance of a pass, some (0.2 of its time) squared: what is not
# known of the factor without a profile and with one, and of the drag; what of them a pass changes.
UNKNOWN, PROFILED, DRAG = 1e6, 25.0, 25.0
MOOD, WANDERING = 0.0123, 0.005
MOST_DRAG = 2.0


class Mean:
    """A moving average, exact over its first samples, and the 95th percentile of the last ones."""

    def __init__(self, weight: float = FAST) -> None:
        self.value = 0.0
        self.count = 0
        self._weight = weight
        self._last: deque[float] = deque(maxlen=KEPT)

    def add(self, value: float) -> None:
        """Takes a sample."""
        self.count += 1
        self.value += (value - self.value) * max(self._weight, 1.0 / self.count)
        self._last.append(value)

    @property
    def last(self) -> float:
        """The last sample; 0 without any."""
        return self._last[-1] if self._last else 0.0

    @property
    def p95(self) -> float:
        """The 95th percentile of the last `KEPT` samples; 0 without any."""
        ordered = sorted(self._last)
        return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0.0


class Line:
    """y = fixed + step x, by decayed least squares; proportional as long as x does not vary.

    RIDGE holds the fixed part near 0, so that one depth alone is taken for so many equal steps.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self._decay = decay
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def known(self) -> bool:
        """Whether there was any sample."""
        return self._sums[0] > 0.0

    def add(self, x: float, y: float) -> None:
        """Takes a sample; x at least 0."""
        n, sx, sxx, sy, sxy = (value * self._decay for value in self._sums)
        self._sums = (n + 1.0, sx + x, sxx + x * x, sy + y, sxy + x * y)

    def fit(self) -> tuple[float, float]:
        """(fixed, step), neither below 0."""
        n, sx, sxx, sy, sxy = self._sums
        if sxx == 0.0:
            return sy / max(n, 1.0), 0.0
        fixed = (sy * sxx - sx * sxy) / ((n + RIDGE) * sxx - sx * sx)
        if fixed < 0.0:
            return 0.0, sxy / sxx
        step = (sxy - fixed * sx) / sxx
        return (fixed, step) if step >= 0.0 else (sy / n, 0.0)


class VerifyCost:
    """v(rows): a target pass by the rows of its step, no draft being made meanwhile.

    The start-up profile, times what live passes take of it: a factor for all rows, which follows
    the machine's mood quickly, and one for passes of about these rows, which believes the first of
    them, since a profile is easily disturbed, and then follows slowly.
    Without a profile v is flat until passes tell otherwise.

    drag: by how much a pass takes longer for each microsecond of drafting meanwhile; 0 where they
    share nothing. A pass is v(rows) + drag x drafted, and a Kalman filter of two states that wander
    (the factor's logarithm, the drag) says which of them a surprise is due to.

    Args:
        profile: (rows, context, microseconds) of each size that was measured.
    """

    def __init__(self, profile: Iterable[tuple[int, int, int]] = ()) -> None:
        tables: dict[int, list[tuple[int, int]]] = {}
        for rows, context, time_us in profile:
            tables.setdefault(context, []).append((rows, time_us))
        self._tables = {context: sorted(table) for context, table in tables.items()}
        self._points: list[int] = [1]
        self._times: list[float] = [1.0]
        self._slopes: list[float] = [0.0]
        self._context = -1
        self._factor = 1.0
        self._local: dict[int, float] = {}
        self._starts: dict[int, float] = {}  # of the same buckets, what their first rows take
        self._seen: dict[int, int] = {}
        self.drag = 0.0
        self.passes = 0
        # Variances of factor and drag, and their covariance.
        self._spread = (PROFILED if self._tables else UNKNOWN, DRAG, 0.0)
        self.settle(0)

    def settle(self, context: int) -> None:
        """Takes the table measured nearest to `context` cached rows."""
        if not self._tables:
            return
        nearest = min(self._tables, key=lambda measured: abs(measured - context))
        if nearest != self._context:
            self._context = nearest
            table = self._tables[nearest]
            self._points = [rows for rows, _ in table]
            self._times = [float(time_us) for _, time_us in table]
            self._slopes = [
                (after_us - before_us) / (after - before)
                for (before, before_us), (after, after_us) in pairwise(table)
            ] or [0.0]
            self._starts = {bucket: self._start(bucket) for bucket in self._local}

    def __call__(self, rows: float) -> float:
        """v(rows), rows at least 1."""
        points, slopes = self._points, self._slopes  # as _base and _bucket do, without the calls
        at = bisect_right(points, rows, 1, len(slopes)) - 1
        base = self._times[at] + slopes[at] * (rows - points[at])
        local = self._local.get(int(4.0 * log2(rows)), 1.0)
        return (base if base > 1.0 else 1.0) * self._factor * local

    def learn(self, rows: int, time_us: float, drafted_us: float = 0.0) -> None:
        """A pass of `rows` rows took this long; drafts were made for `drafted_us` of it."""
        bucket = _bucket(rows)
        local = self._local.get(bucket, 1.0)
        expected = self._base(rows) * self._factor * local
        met = drafted_us / expected
        ratio = max(0.25, time_us / expected - self.drag * met)
        if self.passes:  # one outlier does not turn the table over
            ratio = min(4.0, ratio)
        common, drag = self._gains(met)
        self._factor *= ratio**common
        self.drag = min(MOST_DRAG, max(0.0, self.drag + drag * (ratio - 1.0)))
        if self.passes:
            own = (1.0 - common) / (1.0 + self._seen.get(bucket, 0))
            slow = SLOW if self._tables else 2 * SLOW
            self._local[bucket] = local * ratio ** (max(own, slow) / (1.0 + 4.0 * met))
            if bucket not in self._starts:
                self._starts[bucket] = self._start(bucket)
            self._cap(bucket, self._base(rows) * self._local[bucket])
        self._seen[bucket] = self._seen.get(bucket, 0) + 1
        self.passes += 1

    def _cap(self, bucket: int, level: float) -> None:
        """Fewer rows never take longer than `level`, what a bucket's rows take before the factor.

        While rounds run no pass of K=0 is met, and what a stall made of it would stay for ever.
        """
        for fewer, local in self._local.items():
            if fewer < bucket and local * self._starts[fewer] > level:
                self._local[fewer] = level / self._starts[fewer]

    def _gains(self, met: float) -> tuple[float, float]:
        """How far factor and drag follow a pass that met so much drafting, in units of v."""
        factor, drag, both = self._spread
        on_factor, on_drag = factor + met * both, both + met * drag
        noise = 1.0 + on_factor + met * on_drag
        gains = on_factor / noise, on_drag / noise
        self._spread = (
            factor - gains[0] * on_factor + MOOD,
            min(DRAG, drag - gains[1] * on_drag + WANDERING),
            both - gains[0] * on_drag,
        )
        return gains

    def _base(self, rows: float) -> float:
        at = bisect_right(self._points, rows, 1, len(self._slopes)) - 1
        return max(self._times[at] + self._slopes[at] * (rows - self._points[at]), 1.0)

    def _start(self, bucket: int) -> float:
        return self._base(2.0 ** (bucket / 4.0))


def _bucket(rows: float) -> int:
    """Four buckets to each doubling."""
    return int(4.0 * log2(rows))


def profile_of(entries: Sequence[object]) -> list[tuple[int, int, int]]:
    """(rows, context, microseconds) of `TargetInfo.profile`."""
    return [(entry.rows, entry.context, entry.forward_us) for entry in entries]  # type: ignore[attr-defined]
