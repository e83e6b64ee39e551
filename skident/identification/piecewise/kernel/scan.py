"""All activation boundaries along one line: where a piecewise linear function changes its slope.

A continuous piecewise linear function of one variable is known between two linear ends if these meet on it: it has one
boundary, where they meet. Otherwise the interval is split. Queries grow with the number of boundaries, and only
as the logarithm of their distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.oracle import NotIdentified

from ...constants import DETECTION_TOL, STRAIGHT_TOL, VERIFIED_TOL
from .lines import Table, meeting_point

__all__ = ["LineScan", "scan_line"]

_WINDOW = 0.1  # half width of the first window in which a slope is measured, over the free length around it
_WINDOW_SHRINK = 0.15  # ratio of successive window widths
_WINDOW_STEPS = 9  # 0.15^9 = 4e-8 of the free length: then rounding hides the slope
_SPLIT_RETRIES = 4  # other places tried if a boundary lies where an interval is split
_NARROWEST = 1e-7  # interval, over 1 + |t|, that is left unresolved: slopes measured on it lose their digits
_BESIDE_ERRORS = 64.0  # distance from a boundary at which it is verified, in errors over its jump: they show there
_POSITION_ERRORS = 4.0  # of a position, in errors of the outputs over the jump: two pieces, extrapolated up to twice
_STEP_TOL = 1e3  # rise of a narrow interval over its slopes' and its error's that only a jump explains
_FAR_RATIO = 2.0  # over 1 + |t|: ends farther from a boundary than this are moved closer first
_CHECK_SPACING = 0.7  # of checks along a straight interval, on the asinh scale: three per decade


@dataclass(frozen=True)
class LineScan:
    """Activation boundaries on a line, in order of position."""

    positions: np.ndarray  # (k,)
    jumps: np.ndarray  # (k, m_L), change of the slope
    jump_errors: np.ndarray  # (k,), from the lengths of the linear pieces on both sides
    position_errors: np.ndarray  # (k,)
    unresolved: np.ndarray  # (q, 2), narrow intervals with several boundaries, and intervals without outputs


@dataclass
class _Nodes(Table):
    """Centers of straight windows."""

    t: np.ndarray  # (n,), positions
    f: np.ndarray  # (n, m_L), outputs
    s: np.ndarray  # (n, m_L), slopes
    h: np.ndarray  # (n,), half widths of the windows
    tol: np.ndarray  # (n,), accuracies of the outputs

    def replace(self, index, other):
        """Overwrite some nodes by others."""
        for name in vars(self):
            getattr(self, name)[index] = getattr(other, name)


@dataclass(frozen=True)
class _Boundaries(Table):
    """The columns of a `LineScan`, in any order."""

    positions: np.ndarray
    jumps: np.ndarray
    jump_errors: np.ndarray
    position_errors: np.ndarray


class _Function:
    """A function of one variable with the errors of its values."""

    def __init__(self, query, output_error, length_scale, rng):
        self.query, self.output_error, self.length_scale, self.rng = query, output_error, length_scale, rng

    def at(self, *positions):
        """Values at several arrays of positions of equal lengths, in one batch, and their accuracies as columns."""
        t = np.concatenate(positions)
        values = self.query(t)
        if not isinstance(values, tuple):
            values = values, self.output_error * (1.0 + np.abs(t) / self.length_scale)
        self.n_outputs = values[0].shape[1]
        return np.split(values[0], len(positions)), np.split(values[1][:, None], len(positions))

    def nodes(self, t, gap):
        """Nodes at t (n,), and whether a straight window was detected there, at most a part of the `gap` (n,) wide."""
        h = _WINDOW * gap
        (f, before, after), tols = self.at(t, t - h, t + h)
        at, tol = tols[0][:, 0], np.max(tols, axis=0)[:, 0]
        todo = np.arange(len(t))
        for _ in range(_WINDOW_STEPS):
            sag = np.abs(after[todo] - 2.0 * f[todo] + before[todo]).max(axis=1)
            blind = np.isinf(tol[todo])
            todo = todo[(blind & np.isfinite(at[todo])) | (~blind & (sag > STRAIGHT_TOL * tol[todo]))]
            if len(todo) == 0:
                break
            h[todo] *= _WINDOW_SHRINK
            (before[todo], after[todo]), tols = self.at(t[todo] - h[todo], t[todo] + h[todo])
            tol[todo] = np.maximum(at[todo], np.max(tols, axis=0)[:, 0])
        good = np.isfinite(tol)
        good[todo] = False
        return _Nodes(t, f, (after - before) / (2.0 * h[:, None]), h, tol), good


def scan_line(
    query, reach, *, output_error=1e-14, length_scale=1.0, detection_tol=DETECTION_TOL, max_boundaries=1000, rng=None
):
    """All activation boundaries of a continuous piecewise linear function on ``|t| <= reach``, or ``(low, high)``.

    `query` returns outputs (n, m_L) at positions (n,), or a pair of these and their accuracies (n,), infinite where
    outputs are lost; without accuracies, `output_error` grows as ``1 + |t| / length_scale``. About 20 queries per
    boundary. Raises `NotIdentified` if the outputs jump ("steps"), or bend at more than `max_boundaries` places
    ("crowded"). Boundaries that are too close together are reported as unresolved; one that moves the outputs by less
    than `detection_tol` errors is not detected.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.kernel.scan import scan_line
    >>> scan = scan_line(lambda t: np.abs(t - 0.25)[:, None] + np.maximum(t, 3.0)[:, None], 100.0)
    >>> print(scan.positions.round(6))
    [0.25 3.  ]
    """
    line = _Function(query, output_error, length_scale, np.random.RandomState(0) if rng is None else rng)
    found, unresolved, level = [], [], 0
    left, right = _first_intervals(line, *(reach if isinstance(reach, tuple) else (-reach, reach)))
    while len(left.t):
        steepest = max(np.abs(left.s).max(), np.abs(right.s).max())
        narrow = right.t - left.t <= _NARROWEST * (length_scale + np.minimum(np.abs(left.t), np.abs(right.t)))
        for i in np.flatnonzero(narrow):
            _refuse_steps(left.take([i]), right.take([i]), steepest)
        unresolved.append(_intervals(left, right, narrow))
        left, right = left.take(~narrow), right.take(~narrow)
        boundaries, split, at, given_up = _examine(line, left, right, level, detection_tol)
        found.append(boundaries)
        unresolved.append(_intervals(left, right, given_up))
        left, right = left.take(split), right.take(split)
        if sum(map(len, found)) + len(left.t) > max_boundaries:
            raise NotIdentified(
                "activation boundaries",
                "crowded",
                f"the outputs bend at more than {max_boundaries} places of a line, as far as they were followed.",
            )
        left, right, stuck = _split(line, left, right, at)
        unresolved.append(stuck)
        level += 1
    return _collect(found, unresolved, line.n_outputs)


def _intervals(a, b, mask):
    """The intervals (k, 2) between some pairs of nodes."""
    return np.column_stack([a.t[mask], b.t[mask]])


def _first_intervals(line, low, high):
    """Intervals between nodes at both ends and two near 0: if all boundaries are near 0, the ends could miss them."""
    half = 0.5 * (high - low)
    near = np.minimum(line.length_scale * line.rng.uniform(0.5, 2.0, 2), 0.5 * half) * [-1.0, 1.0]
    near = near[(near > low + 1e-2 * half) & (near < high - 1e-2 * half)]
    gaps = np.concatenate([[half], np.minimum(np.abs(near), np.minimum(near - low, high - near)), [half]])
    nodes, good = line.nodes(np.concatenate([[low], near, [high]]), gaps)
    if not good[[0, -1]].all():
        raise NotIdentified(
            "activation boundaries", "crowded", f"no linear piece was detected at a distance of {high:.3g}."
        )
    nodes = nodes.take(good)
    return nodes.take(slice(None, -1)), nodes.take(slice(1, None))


def _refuse_steps(a, b, steepest):
    """Raise if the function jumps between two nodes, by far more than its slopes and its error allow."""
    rise = np.abs(b.f - a.f - a.s * (b.t - a.t)[:, None])
    if np.any(rise > _STEP_TOL * (steepest * (b.t - a.t)[:, None] + np.maximum(a.tol, b.tol)[:, None])):
        raise NotIdentified(
            "activation boundaries",
            "steps",
            f"the outputs jump within {b.t[0] - a.t[0]:.1e} (in units of the inputs' scale): they are rounded, or the "
            "black box is not continuous (a tree, nearest neighbors).",
        )


def _examine(line, a, b, level, detection_tol):
    """Intervals between nodes a and b: verified single boundaries, which to split and where, and which to give up."""
    width = (b.t - a.t)[:, None]
    rise, (meet, jump) = b.f - a.f - a.s * width, meeting_point(a.t, a.f, a.s, b.t, b.f, b.s)
    tol = np.maximum(a.tol, b.tol)[:, None]
    slack = (a.tol / a.h + b.tol / b.h)[:, None]
    straight = np.abs(jump) <= STRAIGHT_TOL * slack
    straight = np.all(straight & (np.abs(rise) <= STRAIGHT_TOL * (tol + slack * width)), axis=1)
    hidden = np.all((np.abs(jump) * width <= detection_tol * tol) & (np.abs(rise) <= detection_tol * tol), axis=1)
    inside = (meet > a.t + 0.5 * a.h) & (meet < b.t - 0.5 * b.h)
    # Far ends are known less exactly: first split closer to the boundary, which also examines what lies in between.
    near = _FAR_RATIO * (line.length_scale + np.abs(meet))
    far = np.maximum(meet - a.t, b.t - meet) > _FAR_RATIO * near
    single = inside & ~straight & ~hidden & ~far
    split = ~single & ~hidden
    split[straight] = ~_is_straight(line, a.take(straight), b.take(straight))
    index = np.flatnonzero(single)
    found, failed = _verify(line, a.take(index), b.take(index), meet[index])
    split[index[failed]] = True
    # Two boundaries that bend one way lie on the two sides of the point where their outer pieces meet; split
    # beside it, as the outputs may be odd about it.
    gap = np.minimum(meet - a.t, b.t - meet)
    beside = meet + 0.1 * line.rng.uniform(-1.0, 1.0, len(meet)) * gap
    beside = np.where(far, np.where(meet - a.t > _FAR_RATIO * near, meet - near, meet + near), beside)
    # Every third level bisects, in case that the meeting point misleads.
    useful = inside & ~straight & (level % 3 < 2) & (gap > 1e-3 * width[:, 0])
    at = np.where(useful | (far & inside & ~straight), beside, _middle(line, a.t, b.t))
    return found, split, at[split], hidden & ~straight & ~split


def _middle(line, a, b):
    """A random point near the middle, on a scale that is linear near 0 and logarithmic far away."""
    x, y = np.arcsinh(a / line.length_scale), np.arcsinh(b / line.length_scale)
    share = line.rng.uniform(0.4, 0.6, len(a))
    return np.clip(line.length_scale * np.sinh(x + share * (y - x)), a + 1e-3 * (b - a), b - 1e-3 * (b - a))


def _is_straight(line, a, b):
    """Whether points between nodes lie on the chord: several on wide intervals, whose ends miss bumps near 0."""
    if len(a.t) == 0:
        return np.zeros(0, dtype=bool)
    low, high = np.arcsinh(a.t / line.length_scale), np.arcsinh(b.t / line.length_scale)
    counts = 1 + ((high - low) / _CHECK_SPACING).astype(int)
    of = np.repeat(np.arange(len(counts)), counts)
    share = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + line.rng.uniform(0.3, 0.7, len(of))
    t = line.length_scale * np.sinh(low[of] + share / counts[of] * (high - low)[of])
    part = ((t - a.t[of]) / (b.t - a.t)[of])[:, None]
    (values,), (tol,) = line.at(t)
    sag = np.abs(values - (1.0 - part) * a.f[of] - part * b.f[of])
    bent = np.any(sag > STRAIGHT_TOL * np.maximum(tol, np.maximum(a.tol, b.tol)[of, None]), axis=1)
    return np.bincount(of, bent | np.isinf(tol[:, 0]), len(counts)) == 0


def _verify(line, a, b, meet):
    """Single boundaries between nodes whose linear pieces meet near `meet` (n,), and a mask (n,) of the failures."""
    if len(meet) == 0:
        none = np.zeros(0)
        return _Boundaries(none, np.zeros((0, line.n_outputs)), none, none), np.zeros(0, dtype=bool)
    x, f_x, before, tol_x, good_x = _piece_toward(line, a, meet)
    y, f_y, after, tol_y, good_y = _piece_toward(line, b, meet)
    t, jump = meeting_point(x, f_x, before, y, f_y, after)
    good = good_x & good_y & (t > x) & (t < y)
    t, tol = np.where(good, t, meet), np.maximum(tol_x, tol_y)
    # The pieces may also meet on the function outside of several boundaries, if one of them is followed on both sides:
    # so check right beside the meeting point.
    with np.errstate(divide="ignore", invalid="ignore"):
        beside = np.minimum(_BESIDE_ERRORS * tol / np.abs(jump).max(axis=1), 0.5 * np.minimum(t - x, y - t))
    beside = np.where(good, beside, 0.0)
    values, tols = line.at(t, t - beside, t + beside)
    tol = np.maximum(tol, np.max(tols, axis=0)[:, 0])
    good &= np.isfinite(tol)
    follows = ((0, t, a, before), (0, t, b, after), (1, t - beside, a, before), (2, t + beside, b, after))
    for i, where, end, slope in follows:
        gap = np.abs(values[i] - end.f - slope * (where - end.t)[:, None])
        good &= np.all(gap <= VERIFIED_TOL * tol[:, None], axis=1)
    jump_errors = 2.0 * (tol_x / (t - a.t) + tol_y / (b.t - t))
    position_errors = _POSITION_ERRORS * tol / np.maximum(np.abs(jump).max(axis=1), np.finfo(float).tiny)
    return _Boundaries(t, jump, jump_errors, position_errors).take(good), ~good


def _piece_toward(line, node, meet):
    """Linear pieces from nodes toward `meet` (n,): last points, outputs and slopes there, accuracies, a mask."""
    # The last point nearly spans the piece, the middle one finds where a second boundary bends it most.
    middle, last = node.t + 0.5 * (meet - node.t), node.t + 0.95 * (meet - node.t)
    (f_middle, f_last), tols = line.at(middle, last)
    tol = np.max([node.tol, *(t[:, 0] for t in tols)], axis=0)
    good = np.isfinite(tol)
    tol = np.where(good, tol, 1.0)
    slope = (f_last - node.f) / (last - node.t)[:, None]
    sag = np.abs(f_middle - node.f - slope * (middle - node.t)[:, None])
    return last, f_last, slope, tol, good & np.all(sag <= STRAIGHT_TOL * tol[:, None], axis=1)


def _split(line, a, b, at):
    """The halves of intervals split at `at`, or elsewhere if a boundary lies there; intervals where nothing helped."""
    if len(at) == 0:
        return a, b, np.zeros((0, 2))
    middle, good = line.nodes(at, np.minimum(at - a.t, b.t - at))
    for _ in range(_SPLIT_RETRIES):
        check_deadline()
        bad = np.flatnonzero(~good)
        if len(bad) == 0:
            break
        t = a.t[bad] + line.rng.uniform(0.1, 0.9, len(bad)) * (b.t - a.t)[bad]
        again, good[bad] = line.nodes(t, np.minimum(t - a.t[bad], b.t[bad] - t))
        middle.replace(bad, again)
    stuck = _intervals(a, b, ~good)
    a, b, middle = a.take(good), b.take(good), middle.take(good)
    return a.joined(middle), middle.joined(b), stuck


def _collect(found, unresolved, n_outputs):
    """The scan of a line, in order; adjacent unresolved intervals are joined."""
    none = np.zeros(0)
    found = _Boundaries.stacked([_Boundaries(none, np.zeros((0, n_outputs)), none, none), *found])
    found = found.take(np.argsort(found.positions, kind="stable"))
    intervals = np.concatenate([np.zeros((0, 2)), *unresolved])
    intervals = intervals[np.lexsort(intervals.T[::-1])]
    joined = np.flatnonzero(intervals[1:, 0] <= intervals[:-1, 1])
    ends = np.column_stack([np.delete(intervals[:, 0], joined + 1), np.delete(intervals[:, 1], joined)])
    return LineScan(found.positions, found.jumps, found.jump_errors, found.position_errors, ends)
