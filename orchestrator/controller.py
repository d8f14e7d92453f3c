"""Which K the next round takes: expected tokens over expected time, K=0 among the choices.

A session's cycle at depth K emits E(K) = 1 + s_1 + ... + s_K tokens and takes
    C(K) = draft(K) + wire + wait + v(R + 1 + K),   C(0) = gap + v(R + 1),
with R the rows that others have in the target's step and v a step's time by its rows. In a free run
(K=0) the next step takes the session up at once and nothing crosses the wire.

Alone (R = 0) the session maximises E(K) / C(K). In company its rows lengthen the steps of all. The
others make O tokens a step: while it is away O / v(R) a microsecond, in a step with r rows of it
the same O in v(R + r). What all make in its cycle is E(K) + O (C(K) - v(R + r)) / v(R) + O; over
C(K), less O / v(R), which does not depend on K,
    G(K) = (E(K) - O (v(R + r) / v(R) - 1)) / C(K):
its tokens less those that the others lose, over its own time. Where sessions wait because steps are
full, its cycle is the others' turns and only the step counts: G(K) = (E(K) + O) / v(R + r).

N sessions that are alike and choose so settle where W = N E / v, the step's tokens over the step's
time, is greatest: dG = 0 says E' = W v', the condition of that maximum, and choosing again under
the W so found is Dinkelbach's iteration, which converges. So no session buys its speed with more of
the others' time than it gains.

Where drafts take from a step that is under way (`Times.drag`), a proposal at depth K lengthens the
others' steps by drag x draft(K), for the share of the time that these are under way: O tokens fewer
for each v(R) of it, which E(K) is less by (`Value.taken`).

Trees: a further sibling at depth i is worth s_(i-1) (1 - c_i) b: the walk comes there, all before
it missed, it catches (b). It costs the step's marginal time. Siblings are added while G rises.

A drafter that draws nothing knows better what a tree promises: it leaves out a node whose chance
is below what keeps G where it is, and ends where a further level's step would cost more than it
adds (`least_node`, `least_level`).

Hysteresis: K=0 is left only where G rises by `LEAVE` and, within `HORIZON` rounds, pays for the
change (halting the run, the drafter's catching up); it is entered where it wins by `ENTER`. What
one session has seen of its own acceptance is little, so a gain counts `LEAN` times on the side that
is best for the company, and more where drafts take from the target's steps (`Times.caution`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.company import ALONE, depths
from orchestrator.state import Bounds, Choice, Reason, State
from orchestrator.value import Value
from outrider.core.promises import GOES_ON, LEVEL_NODES
from outrider.core.round import Budget

ENTER = 1.01
LEAVE = 1.02
HORIZON = 64.0
LEAN = 1.1
SIBLINGS = 8  # most siblings that a depth is given


@dataclass(frozen=True)
class FixedDepth:
    """K = depth in every round, cut where fewer tokens remain; depth 0 is K=0 throughout.

    nodes: most drafted nodes; m: ids in a q~; time_left_s: how long a proposal may take.
    """

    depth: int
    nodes: int
    m: int
    time_left_s: float
    p_min: float = 0.0

    def calls(self, remaining: int) -> bool:
        """Where there is anything to draft, from the start."""
        return self.depth > 0

    def choose(self, remaining: int) -> Budget | None:
        """The same budget every time; K is below `remaining`: a round emits one more than it
        accepts."""
        depth = min(self.depth, remaining - 1)
        if depth < 1:
            return None
        nodes = depth if self.nodes <= self.depth else self.nodes
        return Budget(depth, nodes, self.m, self.time_left_s, self.p_min)


def choose(state: State, bounds: Bounds, remaining: int) -> Choice:
    """The next round's K with `remaining` tokens still allowed, which it stays below."""
    most = min(bounds.most, remaining - 1)
    if most < 1:
        return Choice(0, 0, Reason.ENDING)
    least = most if bounds.whole else min(max(bounds.least, 1), most)
    if state.times.draft_step_us is None:
        depth = min(max(bounds.recommended, least), most)
        return Choice(depth, bounds.nodes if bounds.whole else depth, Reason.COLD)
    value = Value(state, state.company)
    if bounds.whole:
        depth, nodes = most, bounds.nodes
        best = value.drafting(value.away(depth), nodes, value.emitted[depth])
    else:
        depth, best = _best_depth(value, least, most)
        limit = bounds.nodes if bounds.nodes > bounds.most else depth  # no more than n_max: a chain
        nodes, best = _best_nodes(value, state, depth, best, limit)
    choice = Choice(depth, nodes, Reason.GAIN)
    if nodes > depth and not bounds.whole:
        choice = _demanding(choice, value, state, best)
    if bounds.least > 0:
        return choice
    free = value.free_run()
    gain = best / free
    if state.company.mates:
        gain *= LEAN if state.company.depth else 1.0 / (LEAN * state.times.caution)
    best = gain * free
    if not state.running:
        if gain >= 1.0:
            return replace(choice, gain=gain)
        if gain * ENTER > 1.0:
            return replace(choice, reason=Reason.HELD, gain=gain)
        return Choice(0, 0, _why(state, least, most), gain)
    cycle = value.away(depth) + value.step(nodes)
    if gain > LEAVE and HORIZON * (best - free) * cycle > free * state.change_us:
        return replace(choice, gain=gain)
    if state.probes * (free - best) * cycle + free * state.change_us < state.allowance:
        return replace(choice, reason=Reason.PROBE, gain=gain)
    if gain > 1.0:
        return Choice(0, 0, Reason.HELD, gain)
    return Choice(0, 0, _why(state, least, most), gain)


def _best_depth(value: Value, least: int, most: int) -> tuple[int, float]:
    found, best = least, float("-inf")
    for depth in depths(least, most):
        gain = value.drafting(value.away(depth), depth, value.emitted[depth])
        if gain > best:
            found, best = depth, gain
    return found, best


def _best_nodes(
    value: Value, state: State, depth: int, best: float, limit: int
) -> tuple[int, float]:
    """Siblings beside a chain of `depth`, one a level from the top down, while G rises."""
    b, curve, away = state.sibling, state.curve, value.away(depth)
    nodes, tokens = depth, value.emitted[depth]
    if b <= 0.0:
        return nodes, best
    left = [before - after for before, after in zip([1.0, *curve], curve[:depth], strict=False)]
    for extra in range(min(limit - depth, SIBLINGS * depth)):
        level = extra % depth
        tokens += left[level] * b
        left[level] *= 1.0 - b
        gain = value.drafting(away, depth + extra + 1, tokens)
        if gain > best:
            nodes, best = depth + extra + 1, gain
        elif level == 0:
            break  # the level that is reached most often gains nothing more
    return nodes, best


def _demanding(choice: Choice, value: Value, state: State, gain: float) -> Choice:
    """The choice with the chances at which a node, and a level, leave G about as it is."""
    away, drafted = value.away(choice.depth), max(1.0, choice.nodes * state.times.fill)
    now = value.tokens_for(gain, away, drafted)
    # Live passes are known by sizes, so that v climbs in steps: the mean slope says more.
    node = max(0.0, now - value.tokens_for(gain, away, 0.0)) / drafted
    slower = away + (state.times.draft_step_us or 0.0)
    level = value.tokens_for(gain, slower, drafted) - now + LEVEL_NODES * node
    return replace(choice, least_node=node, least_level=level / GOES_ON)


def _why(state: State, least: int, most: int) -> Reason:
    """Whether load or acceptance is what makes K=0 best."""
    if state.company.mates:
        idle, before = Value(state, ALONE), 0.0
        free = idle.free_run()
        for depth in depths(least, most):
            gain = idle.drafting(idle.away(depth), depth, idle.emitted[depth])
            if gain > free:
                return Reason.LOADED
            if gain < before:  # alone it has one summit, or nearly so
                break
            before = gain
    return Reason.NO_GAIN
