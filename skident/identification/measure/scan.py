"""All activation boundaries on many lines: pairs of queries, bends confirmed on both sides of the meeting point.

Between two pairs of queries the outputs are straight, bend once where the pieces of the pairs meet, or the interval is
split. A bend counts only if the outputs follow both pieces right beside the meeting point: two bends of opposite sign
pass one test at the point where their outer pieces meet, if that is outside of both.
"""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import TINY
from skident.oracle import NotIdentified

from ..piecewise.kernel.lines import Table, meeting_point
from .outputs import SIGNIFICANCE

_MOST_BENDS = 1000  # per line (budget)
_PAIRS_PER_BEND = 4  # that it takes at most, on average
_BLIND = 1e-3  # interval with lost outputs that is given up, over the length of its line
_MOST_HALVINGS = 60  # of an interval (budget)
_MOST_RESCANS = 4  # of a gap between two straight runs that do not meet (budget)
_RESCAN_NODES = 8  # of a rescanned gap
_BESIDE_ERRORS = 4.0  # distance from the meeting point of the outputs that confirm it, over its error
_BESIDE_SHARE = 0.2  # of the distance from the nearest pair, at most


@dataclass(frozen=True)
class Bends(Table):
    """Positions on lines where the outputs change their slope."""

    line: np.ndarray  # (k,)
    t: np.ndarray  # (k,)
    t_error: np.ndarray  # (k,)
    jump: np.ndarray  # (k, m_L)
    jump_error: np.ndarray  # (k,)


@dataclass(frozen=True)
class Runs(Table):
    """Intervals of lines on which the outputs are straight."""

    line: np.ndarray  # (k,)
    low: np.ndarray  # (k,)
    high: np.ndarray  # (k,)
    slope: np.ndarray  # (k, m_L)
    error: np.ndarray  # (k,), largest of its outputs


@dataclass(frozen=True)
class Gaps(Table):
    """Intervals of lines in which the outputs were lost, or bend in a way that was not resolved."""

    line: np.ndarray  # (k,)
    low: np.ndarray  # (k,)
    high: np.ndarray  # (k,)


@dataclass
class _Pairs(Table):
    """Pairs of queries: with bends inside (`broken`), a confirmed one (`bent`), straight up to the next (`linked`)."""

    line: np.ndarray  # (n,)
    t: np.ndarray  # (n,), the left one
    width: np.ndarray  # (n,)
    left: np.ndarray  # (n, m_L)
    right: np.ndarray  # (n, m_L)
    error: np.ndarray  # (n,)
    broken: np.ndarray  # (n,), bends inside
    linked: np.ndarray  # (n,)
    bent: np.ndarray  # (n,)

    @property
    def end(self):
        return self.t + self.width

    def put(self, index, other):
        """Overwrite some pairs by others."""
        for name in vars(self):
            getattr(self, name)[index] = getattr(other, name)

    @property
    def slope(self):
        return (self.right - self.left) / self.width[:, None]


def scan(outputs, lines, nodes, most_bends=_MOST_BENDS, depth=0):
    """`Bends`, `Runs` and `Gaps` of lines (`Segments`) from first pairs at positions `nodes` (n, k) in order.

    Raises NotIdentified ("crowded") if the outputs bend at more than `most_bends` places per line. Two queries per pair
    and two per bend, four where errors are large. Bends closer together than the relative error of positions, and bumps
    between two first pairs, are not detected.
    """
    n, k = nodes.shape
    gaps = np.diff(nodes, axis=1)
    width = outputs.pair_share * np.minimum(np.c_[gaps[:, :1], gaps], np.c_[gaps, gaps[:, -1:]])
    pairs = _query_pairs(outputs, lines, np.repeat(np.arange(n), k), nodes.ravel(), width.ravel())
    index = np.arange(n * k).reshape(n, k)
    a, b = index[:, :-1].ravel(), index[:, 1:].ravel()
    for _ in range(_MOST_HALVINGS):
        if len(a) == 0:
            break
        split, around = _examine(outputs, lines, pairs, a, b)
        pairs, a, b = pairs.joined(around), a[split], b[split]
        if len(pairs) + len(a) > n * (k + _PAIRS_PER_BEND * most_bends):
            places = f"the outputs bend at more than {most_bends} places of a line, as far as they were followed."
            raise NotIdentified("activation boundaries", "crowded", places)
        low, width = pairs.end[a], pairs.t[b] - pairs.end[a]
        at = low + width * outputs.rng.uniform(0.4, 0.6, len(a))
        middle = len(pairs) + np.arange(len(a))
        if len(a):
            pairs = pairs.joined(_query_pairs(outputs, lines, pairs.line[a], at, outputs.pair_share * width))
        a, b = np.r_[a, middle], np.r_[middle, b]
    return _collected(outputs, lines, pairs, nodes[:, [0, -1]], most_bends, depth)


def _query_pairs(outputs, lines, line, t, width):
    t = t - 0.5 * width
    F, error = outputs.block(lines.at(line, np.stack([t, t + width], axis=1)))
    none = np.zeros(len(t), dtype=bool)
    return _Pairs(line, t, width, F[:, 0], F[:, 1], error.max(axis=1), none, none.copy(), none.copy())


def _examine(outputs, lines, pairs, a, b):
    """Mark intervals between pairs a and b that are straight or bend once.

    Returns a mask of those to be split, and pairs right around the bends.
    """
    one, other = pairs.take(a), pairs.take(b)
    w, error = other.t - one.end, np.maximum(one.error, other.error)
    rise = other.left - one.right
    from_a, from_b = (SIGNIFICANCE * error * (2.0 + 2.0 * w / pair.width) for pair in (one, other))
    with np.errstate(invalid="ignore"):  # lost outputs have infinite errors
        along_a = np.abs(rise - one.slope * w[:, None]).max(axis=1) <= from_a
        along_b = np.abs(rise - other.slope * w[:, None]).max(axis=1) <= from_b
    seen = np.isfinite(error)
    straight = seen & (along_a | along_b)
    pairs.linked[a[straight]] = True
    pairs.broken[b[along_a & ~along_b]] = True
    pairs.broken[a[along_b & ~along_a]] = True
    t, jump = meeting_point(one.end, one.right, one.slope, other.t, other.left, other.slope)
    with np.errstate(invalid="ignore"):
        meet = np.abs(
            one.right + one.slope * (t - one.end)[:, None] - other.left - other.slope * (t - other.t)[:, None]
        )
        single = seen & ~straight & (t > one.end) & (t < other.t) & (meet.max(axis=1) <= from_a + from_b)
    i = np.flatnonzero(single)
    pieces = (one.end[i], one.right[i], one.slope[i]), (other.t[i], other.left[i], other.slope[i])
    single[i], around = _confirmed(
        outputs, lines, one.line[i], t[i], np.linalg.norm(jump[i], axis=1), pieces, (from_a + from_b)[i]
    )
    pairs.linked[a[single]] = True
    lost = np.isinf(one.error).astype(int) + np.isinf(other.error)
    narrowest = outputs.exact_tol * (outputs.length + np.abs(one.t))
    narrowest = np.where(lost > 0, _BLIND * (lines.high - lines.low)[one.line], narrowest)
    return ~straight & ~single & (w > narrowest) & (lost < 2), around


def _confirmed(outputs, lines, line, t, size, pieces, slack):
    """Whether the outputs follow two pieces (position, output, slope) up to right beside their meeting points (n,).

    And the pairs around those where they do, linked to what follows. Where these are wide, the pieces up to them meet
    more exactly, and are confirmed again: else two bends between them would pass for one.
    """
    good, around, error = _followed(outputs, lines, line, t, size, pieces, slack)
    wide = np.flatnonzero(good & (around.width > outputs.exact_tol * (outputs.length + np.abs(t))))
    if len(wide):
        (x, f, _), (y, g, _) = (tuple(part[wide] for part in piece) for piece in pieces)
        one = around.take(wide)
        before, after = (one.left - f) / (one.t - x)[:, None], (g - one.right) / (y - one.end)[:, None]
        meet = meeting_point(one.t, one.left, before, one.end, one.right, after)[0]
        parallel = ~np.isfinite(meet)  # rounded pieces may be
        meet = np.where(parallel, t[wide], np.clip(meet, one.t, one.end))
        ends = (one.t, one.left, before), (one.end, one.right, after)
        slack = 2.0 * SIGNIFICANCE * error[wide] * (2.0 + 2.0 * one.width / np.minimum(one.t - x, y - one.end))
        found, nearer, _ = _followed(outputs, lines, line[wide], meet, size[wide], ends, slack)
        good[wide] = found & ~parallel
        around.put(wide, nearer)
    return good, around.take(good)


def _followed(outputs, lines, line, t, size, pieces, slack):
    """Whether outputs follow pieces up to right beside meeting points (n,), pairs around these, and their errors."""
    (x, f, before), (y, g, after) = pieces
    nearest = np.minimum(np.abs(t - x), np.abs(y - t))
    beside = np.minimum(_BESIDE_ERRORS * slack / np.maximum(size, TINY), _BESIDE_SHARE * nearest)
    F, error = outputs.block(lines.at(line, np.stack([t - beside, t + beside], axis=1)))
    left = np.abs(F[:, 0] - f - before * (t - beside - x)[:, None]).max(axis=1)
    right = np.abs(F[:, 1] - g - after * (t + beside - y)[:, None]).max(axis=1)
    error = error.max(axis=1)
    with np.errstate(invalid="ignore"):  # lost outputs have infinite errors
        good = (np.maximum(left, right) <= np.maximum(slack, SIGNIFICANCE * error)) & np.isfinite(error)
    yes = np.ones(len(t), dtype=bool)
    pairs = _Pairs(line, t - beside, 2.0 * beside, F[:, 0], F[:, 1], error, yes, yes.copy(), yes.copy())
    return good, pairs, error


def _collected(outputs, lines, pairs, ends, most_bends, depth):
    """What `scan` returns, of its pairs; gaps in which two runs do not meet are scanned again from within the runs."""
    pairs = pairs.take(np.lexsort((pairs.t, pairs.line)))
    line, T = np.repeat(pairs.line, 2), np.stack([pairs.t, pairs.end], axis=1).ravel()
    F, error = np.stack([pairs.left, pairs.right], axis=1).reshape(len(T), -1), np.repeat(pairs.error, 2)
    joined = np.stack([~pairs.broken, pairs.linked], axis=1).ravel()
    joined[:-1] &= line[:-1] == line[1:]
    joined &= np.isfinite(error)
    start = np.flatnonzero(np.r_[True, ~joined[:-1]])
    end = np.r_[start[1:], len(T)] - 1
    good = (T[end] > T[start]) & np.isfinite(error[end])
    start, end = start[good], end[good]
    slope = (F[end] - F[start]) / (T[end] - T[start])[:, None]
    runs = Runs(line[start], T[start], T[end], slope, np.maximum(error[start], error[end]))
    if len(runs) < 2:
        none = np.zeros(0)
        return Bends(line[:0], none, none, F[:0], none), runs, _at_ends(runs, ends)
    at_ends = F[end[:-1]], F[start[1:]], np.maximum(error[end[:-1]], error[start[1:]])
    bends, again, found = _between(outputs, lines, runs, at_ends, pairs.bent[end[:-1] // 2])
    p, q = runs.take(slice(None, -1)), runs.take(slice(1, None))
    again &= depth < _MOST_RESCANS
    gaps = Gaps(p.line, p.high, q.low).take((p.line == q.line) & ~found & ~again).joined(_at_ends(runs, ends))
    if again.any():
        p, q = p.take(again), q.take(again)
        between = p.line, p.high, q.low, p.high - p.low, q.high - q.low
        more, left = _rescanned(outputs, lines, between, most_bends, depth)
        bends, gaps = bends.joined(more), gaps.joined(left)
    return bends, runs, gaps


def _between(outputs, lines, runs, at_ends, confirmed):
    """`Bends` between successive runs, where runs differ without one (n,), and where there is one (n,).

    `at_ends`: the outputs at the end of the run before and at the start of the run after, and their errors;
    `confirmed` (n,): bends that need no further queries.
    """
    p, q, (before, after, rounding) = runs.take(slice(None, -1)), runs.take(slice(1, None)), at_ends
    slope_error = np.sqrt(2.0) * runs.error / (runs.high - runs.low)
    jump, jump_error = q.slope - p.slope, np.hypot(slope_error[:-1], slope_error[1:])
    size, gap = np.linalg.norm(jump, axis=1), q.low - p.high
    t = meeting_point(p.high, before, p.slope, q.low, after, q.slope)[0]
    error = 2.0 * rounding + np.abs(gap) * jump_error
    t_error = error / np.maximum(size, TINY)
    differ = (p.line == q.line) & (size > SIGNIFICANCE * jump_error)
    slack = SIGNIFICANCE * np.where(differ, t_error, 0.0)
    found = differ & (t > p.high - slack) & (t < q.low + slack)
    i = np.flatnonzero(found & ~confirmed)
    pieces = (p.high[i], before[i], p.slope[i]), (q.low[i], after[i], q.slope[i])
    found[i] = _confirmed(outputs, lines, p.line[i], t[i], size[i], pieces, SIGNIFICANCE * error[i])[0]
    return Bends(p.line, t, t_error, jump, jump_error).take(found), differ & ~found, found


def _rescanned(outputs, lines, between, most_bends, depth):
    """`Bends` and `Gaps` in intervals (line, ends, and lengths of the runs beside them) that lie between two runs."""
    line, low, high, before, after = between
    first, last = low - 0.5 * np.minimum(high - low, before), high + 0.5 * np.minimum(high - low, after)
    nodes = first[:, None] + (last - first)[:, None] * np.linspace(0.0, 1.0, _RESCAN_NODES)
    more, _, gaps = scan(outputs, lines.take(line), nodes, most_bends, depth + 1)
    more = more.take((more.t > low[more.line]) & (more.t < high[more.line]))
    gaps = Gaps(line[gaps.line], np.maximum(gaps.low, low[gaps.line]), np.minimum(gaps.high, high[gaps.line]))
    return replace(more, line=line[more.line]), gaps.take(gaps.low < gaps.high)


def _at_ends(runs, ends):
    """`Gaps` before the first run of every line, and after its last one, between these ends (n, 2)."""
    n = len(ends)
    first, last = ends[:, 1].copy(), ends[:, 0].copy()
    np.minimum.at(first, runs.line, runs.low)
    np.maximum.at(last, runs.line, runs.high)
    none = first > last
    gaps = Gaps(np.tile(np.arange(n), 2), np.r_[ends[:, 0], last], np.r_[first, ends[:, 1]])
    return gaps.take((gaps.low < gaps.high) & ~np.r_[none, np.zeros(n, dtype=bool)])
