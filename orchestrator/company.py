"""What the sessions of a target do together: the depth at which all of them earn most.

A step's cost may jump with its rows, so a session that only weighs its own rows against the steps
it sees can be stuck with all others where each alone is right and all together lose. Hence the
depth of the company is found first, for sessions that are alike, and each answers to that.

N sessions at depth K think for Z = draft(K) + wire, then wait for the next step, v(m (1 + K)) for
the m = N v / C sessions that meet in it:
    C = max(Z + wait + v, N v / B),
since a step has room for B. Who thinks less than a step misses the one that began meanwhile, and
the target never rests: wait = v - Z, groups take turns. Who thinks longer finds a step under way
for the share (N - 1) v / C of the time, half over: wait = share v / 2. Two substitutions solve it
from the m of the depth before; against the discrete simulation of the tests it is a few per cent
off.
Where drafts are made on the target's cores (`Times.drag`), a step under way meanwhile takes longer:
each of the m sessions' worth of drafts that a step's time sees adds drag x draft(K).
Free runs meet in every step: C(0) = gap + max(1, N / B) v(min(N, B)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

ROUNDS = 2
CAUTION = 0.25  # gain that drafting must promise where all of it takes from the steps


@dataclass(frozen=True)
class Times:
    """What a round takes beside the step, microseconds: a proposal (fixed part, each depth), the
    wire to the target, and the time between two steps of a free run. draft_step_us is None where no
    draft was ever measured. fill: share of the asked nodes that drafts have. queue_us: what a
    proposal waits for others, besides. drag: the time by which a microsecond
    of drafting lengthens a step that is under way."""

    draft_fixed_us: float = 0.0
    draft_step_us: float | None = None
    wire_us: float = 0.0
    gap_us: float = 0.0
    fill: float = 1.0
    queue_us: float = 0.0
    drag: float = 0.0

    @property
    def caution(self) -> float:
        """The gain over K=0 from which drafting in company is believed to be one: not all that it
        takes from the others is counted."""
        return 1.0 + CAUTION * min(1.0, self.drag)

    def drag_us(self, depth: int) -> float:
        """What a proposal takes from a step that is under way."""
        return self.drag * (self.think_us(depth) - self.queue_us - self.wire_us)

    def think_us(self, depth: int) -> float:
        """Z(K)."""
        drafting = self.draft_fixed_us + (self.draft_step_us or 0.0) * depth * self.fill
        return drafting + self.queue_us + self.wire_us


@dataclass(frozen=True)
class Company:
    """The others of a session, as it meets them in a step.

    depth: the best one for all. mates: sessions in a step beside it; rows: theirs. tokens: what all
    of them make in a step, which takes step_us, drag_us of it for their drafts, and is under way
    for this share of the time. full: whether steps have no room for all who wait.
    """

    depth: int = 0
    mates: float = 0.0
    rows: float = 0.0
    tokens: float = 0.0
    step_us: float = 0.0
    share: float = 0.0
    full: bool = False
    drag_us: float = 0.0


ALONE = Company()


def settle(
    sessions: int,
    batch: int,
    curve: Sequence[float],
    times: Times,
    verify: Callable[[float], float],
) -> Company:
    """The company of `sessions` in all at the depth at which it makes most tokens.

    Args:
        batch: most sessions in a step.
        curve: mean survival s_1, s_2, ...; as deep as it may draft.
        verify: v(rows).
    """
    if sessions <= 1:
        return ALONE
    return next(found for found in search(sessions, batch, curve, times, verify) if found)


def search(
    sessions: int,
    batch: int,
    curve: Sequence[float],
    times: Times,
    verify: Callable[[float], float],
) -> Iterator[Company | None]:
    """The same for two or more, in small portions: None for each depth it looks at, and then the
    company."""
    meet = float(min(sessions, batch))
    step = verify(meet)
    best = times.caution / (times.gap_us + step * max(1.0, sessions / batch))
    full = sessions > batch
    found = Company(0, meet - 1.0, meet - 1.0, meet - 1.0, step, 1.0, full)
    emitted = list(accumulate(curve, initial=1.0))
    for depth in depths(1, len(curve)) if times.draft_step_us is not None else ():
        yield None
        tokens = emitted[depth]
        cycle, meet, step, share, drag = _cycle(sessions, batch, depth, meet, times, verify)
        if tokens / cycle > best:
            best = tokens / cycle
            mates, crowded = meet - 1.0, meet >= batch
            rows = mates * (1.0 + depth * times.fill)
            found = Company(depth, mates, rows, mates * tokens, step, share, crowded, drag)
    yield found


def depths(least: int, most: int) -> Iterator[int]:
    """Depths worth looking at: all up to 8, then every second, third, ... one, where one more or
    less hardly matters."""
    while least <= most:
        yield least
        least += 1 + least // 9


def _cycle(
    sessions: int,
    batch: int,
    depth: int,
    meet: float,
    times: Times,
    verify: Callable[[float], float],
) -> tuple[float, float, float, float, float]:
    """C, the sessions that meet in a step (`meet`: about so many), its time, its share of the
    time, and what drafts add to it."""
    think, each = times.think_us(depth), times.drag_us(depth)
    rows = 1.0 + depth * times.fill
    cycle = step = drag = 0.0
    share = 1.0
    for _ in range(ROUNDS):
        drag = share * min(meet, sessions - 1.0) * each
        step = verify(max(1.0, meet * rows)) + drag
        share = min(1.0, (sessions - 1) * step / (think + 1.5 * step))
        cycle = max(think + wait(think, step, share) + step, sessions / batch * step)
        meet = min(float(batch), max(1.0, sessions * step / cycle))
    return cycle, meet, step, share, drag


def wait(think: float, step: float, share: float) -> float:
    """From a request to the step that takes it, all in one unit; between the two cases of the
    module's text it passes over gradually, since times vary."""
    if step <= 0.0:
        return 0.0
    late = 2.0 * (think / step - 0.75)
    if late <= 0.0:
        return step - think
    if late >= 1.0:
        return share * step / 2
    return (1.0 - late) * max(0.0, step - think) + late * share * step / 2
