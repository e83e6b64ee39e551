"""Half circles at large radius, on which a network with a saturated first layer is a step function of the angle."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from skident.oracle import NotIdentified

from ..constants import MANY_ROUNDINGS

_GRID = 32  # intervals of a half circle before the first bisection; budget: the queries of a half circle without steps
_FINE_GRID = 4096  # intervals, in number, at which the steps of a saturated layer fill a small part of the half circle
_MAX_MOVING = 0.3  # part of a fine grid that may change; more of it, and the layer does not saturate there
_MAX_STEPS = 2000  # steps followed on one half circle; budget
_CHANGE_FALSE_ALARMS = 1e-7  # probability that noise alone exceeds the threshold of a change, per pair of outputs
_TAIL = 1e-9  # of the outputs' range: smaller changes of exact outputs are tails of steps; far above their rounding
# Part of an interval's change below which one half is the tail of a step in the other half; below 1, and large enough
# not to follow tails down to rounding, which needs a query per halving and determines nothing of the slope.
_TAIL_OF_CELL = 1e-2
# Part of the mean distance between steps within which a run of changing intervals is one step; two steps share such a
# run with about this probability. With noise, circles are so small that steps are hardly narrower than their distance.
_RUN_WIDTH = 0.01
_RUN_WIDTH_NOISY = 0.1  # `_RUN_WIDTH` with noise
_RUN_CELLS = 3  # changing intervals in a row whose inner points sample the slope of a step
_LONG_RUN = 16  # intervals of a run on a fine grid that is one step however crowded the circle is
_JUMP_WIDTH = 1e-13  # radians per interval: rounding of an angle near pi (4e-16) hides the slope of narrower steps
_SATURATED = 25.0  # pre-activation beyond which tanh, sigmoid and erf are within 2e-11 of their limits
_SAME_ANGLE = 1e-15  # radians by which the ends of adjacent intervals may differ; rounding
_CLIPPED_FRACTION = 5e-3  # fractions of a step are clipped to this distance from 0 and 1, where arctanh is finite
# Of a step's width, by which a known hyperplane may miss it: `Step` ends are bisected, not fitted.
_POSITION_SLACK = 0.1


@dataclass(frozen=True)
class Circle:
    """A circle around the center, in the plane of the orthonormal columns of `frame` (D, 2)."""

    frame: np.ndarray
    radius: float

    def at(self, angles):
        """Points (n, D) at angles (n,)."""
        return self.radius * (np.cos(angles)[:, None] * self.frame[:, 0] + np.sin(angles)[:, None] * self.frame[:, 1])

    def tangents(self, angles):
        """Unit vectors (n, D) along the circle, towards larger angles (n,)."""
        return Circle(self.frame, 1.0).at(angles + 0.5 * np.pi)

    def larger(self, factor):
        """The circle in the same plane with `factor` times the radius."""
        return Circle(self.frame, factor * self.radius)

    def crossings(self, weights, biases):
        """Angles (m,) where hyperplanes ``weights.T u + biases = 0`` cross the half circle, and slopes (m,) there.

        NaN for a hyperplane that misses the circle. The slope is the largest derivative of ``weights.T u`` by the
        angle. Weights (D, m), biases (m,).
        """
        a, b = self.frame.T @ weights * self.radius
        amplitude = np.hypot(a, b)
        # a cos t + b sin t + bias = amplitude cos(t - phase) + bias = 0
        with np.errstate(invalid="ignore", divide="ignore"):
            turn = np.arccos(-biases / amplitude)
        angles = np.mod(np.arctan2(b, a) + np.stack([turn, -turn]), 2.0 * np.pi)
        # Of the two crossings, nearly opposite, the one in the middle half.
        first = np.abs(angles[0] - 0.5 * np.pi) <= np.abs(angles[1] - 0.5 * np.pi)
        return np.where(first, angles[0], angles[1]), amplitude


@dataclass
class Step:
    """An interval of angles on which the outputs go from one constant (m_L,) to another.

    ``(1 + tanh(rate (angle - center))) / 2`` fits the fraction of the step; the rate is infinite for a jump.
    """

    left: float
    right: float
    before: np.ndarray
    after: np.ndarray
    center: float
    rate: float


def _change_threshold(outputs, noisy):
    """Distance above which two of the outputs (n, m_L) differ; noisy outputs come in units of their noise."""
    if noisy:
        return np.sqrt(2.0 * chi2.isf(_CHANGE_FALSE_ALARMS, outputs.shape[1]))
    spread = max(np.ptp(outputs, axis=0).max(), np.finfo(float).tiny)
    return _TAIL * spread + MANY_ROUNDINGS * np.finfo(float).eps * np.abs(outputs).max()


def known_steps(steps, angles, margins):
    """Which steps, (t,) of bool, are known hyperplanes that cross at angles (m,), each within a margin (m,).

    A hyperplane explains one step at most, the nearest.
    """
    known = np.zeros(len(steps), dtype=bool)
    if len(steps) == 0 or len(angles) == 0:
        return known
    left, right = np.array([s.left for s in steps]), np.array([s.right for s in steps])
    widths = np.maximum(right - left, _SAME_ANGLE)
    off = np.maximum(0.0, np.maximum(left - angles[:, None], angles[:, None] - right))
    ratio = off / (_POSITION_SLACK * widths + margins[:, None])
    free = np.ones(len(angles), dtype=bool)
    for flat in np.argsort(np.where(np.isnan(ratio), np.inf, ratio), axis=None):
        unit, step = np.unravel_index(flat, ratio.shape)
        if not ratio[unit, step] < 1.0:
            break
        if free[unit] and not known[step]:
            free[unit], known[step] = False, True
    return known


def grid_without(angles, slopes, margins):
    """Edges (n,) of the initial intervals of a half circle, and which of these (n - 1,) hold a known step only.

    Known hyperplanes cross at angles (m,) with slopes (m,), up to margins (m,). A step whose position is known well
    gets an interval of its own that holds its tails, too.
    """
    edges = np.linspace(0.0, np.pi, _GRID + 1)
    half = _SATURATED / slopes + margins
    # A tenth of the mean distance at most: wider intervals could hold an unknown step.
    narrow = (half < 0.1 * np.pi / max(len(angles), 1)) & (angles > half) & (angles < np.pi - half)
    left, right = angles[narrow] - half[narrow], angles[narrow] + half[narrow]
    inside = np.any((edges[:, None] > left) & (edges[:, None] < right), axis=1)
    edges = np.sort(np.concatenate([edges[~inside], left, right]))
    middle = 0.5 * (edges[:-1] + edges[1:])
    return edges, np.any((middle[:, None] > left) & (middle[:, None] < right), axis=1)


def scan(query, edges, skipped, noisy):
    """All steps of a half circle: the intervals between edges (n,) whose ends differ, but those skipped, are bisected.

    `query` maps angles (n,) to outputs (n, m_L). Bisection of a step ends as soon as three intervals in a row change:
    the points between them sample its slope. About ``log2(32 cells / width) + 3`` queries per step. With noise, a low
    step may split into parts below the noise before that; then it is taken as it was one bisection earlier.
    Raises NotIdentified if the outputs change on a large part of the half circle, or at too many places.
    """
    F = query(edges)
    tol = _change_threshold(F, noisy)
    cells = edges[:-1], edges[1:], F[:-1], F[1:]
    active = (_change(cells) > tol) & ~skipped
    cells, n_cells, steps = tuple(c[active] for c in cells), _GRID, []
    while len(cells[0]):
        n = len(cells[0])
        if (n_cells >= _FINE_GRID and n > _MAX_MOVING * n_cells) or n > _LONG_RUN * _MAX_STEPS:
            raise NotIdentified(
                "saturation",
                "unbounded",
                f"the outputs change on {n} of {n_cells} intervals of a large half circle: the first layer does not "
                "saturate there.",
            )
        runs = _runs(cells)
        crowding = (len(runs) + len(steps)) / (np.pi * (_RUN_WIDTH_NOISY if noisy else _RUN_WIDTH))
        complete = [r for r in runs if _is_complete(cells, r, crowding, n_cells)]
        steps += [_fit_step(tuple(c[r] for c in cells)) for r in complete]
        rest = np.setdiff1d(np.arange(n), np.concatenate([np.empty(0, dtype=int), *complete]))
        cells, lost = _bisect(query, tuple(c[rest] for c in cells), tol)
        steps += [_fit_step(halves) for halves in lost] if noisy else []
        n_cells *= 2
    return sorted(steps, key=lambda step: step.left)


def _change(cells):
    return np.linalg.norm(cells[3] - cells[2], axis=1)


def _runs(cells):
    """Indices of adjacent intervals, run by run."""
    left, right = cells[:2]
    return np.split(np.arange(len(left)), np.flatnonzero(left[1:] > right[:-1] + _SAME_ANGLE) + 1)


def _is_complete(cells, run, crowding, n_cells):
    """Whether a run of changing intervals samples the slope of one step, as far as rounding lets it."""
    left, right = cells[0][run[0]], cells[1][run[-1]]
    if right - left < len(run) * _JUMP_WIDTH:
        return True
    # Steps side by side in intervals that are not yet narrow would make a run, too.
    narrow = (right - left) * crowding < 1.0 or (len(run) >= _LONG_RUN and n_cells >= _FINE_GRID)
    return len(run) >= _RUN_CELLS and narrow


def _bisect(query, cells, tol):
    """The halves of intervals that change, and all halves of each run none of which changes: split up into noise."""
    left, right, Fl, Fr = cells
    n = len(left)
    if n == 0:
        return cells, []
    middle = 0.5 * (left + right)
    Fm = query(middle)
    halves = (
        np.stack([left, middle], axis=1).ravel(),
        np.stack([middle, right], axis=1).ravel(),
        np.stack([Fl, Fm], axis=1).reshape(2 * n, -1),
        np.stack([Fm, Fr], axis=1).reshape(2 * n, -1),
    )
    active = _change(halves) > np.maximum(tol, _TAIL_OF_CELL * np.repeat(_change(cells), 2))
    lost = [
        np.ravel(2 * run[:, None] + [0, 1]) for run in _runs(cells) if not active[2 * run[0] : 2 * run[-1] + 2].any()
    ]
    return tuple(h[active] for h in halves), [tuple(h[some] for h in halves) for some in lost]


def _fit_step(cells):
    """One step from a run of intervals: (1 + tanh z) / 2 through the fractions at the points inside."""
    left, right, before, after = cells[0][0], cells[1][-1], cells[2][0], cells[3][-1]
    jump = after - before
    p = (cells[3][:-1] - before) @ jump / max(jump @ jump, np.finfo(float).tiny)
    center, rate = 0.5 * (left + right), np.inf
    if len(p):
        p = np.clip(p, _CLIPPED_FRACTION, 1.0 - _CLIPPED_FRACTION)
        # An error of p is an error of z divided by 2 p (1 - p): weights of least squares.
        angles, z, weight = cells[1][:-1], np.arctanh(2.0 * p - 1.0), (p * (1.0 - p)) ** 2
        mean_angle, mean_z = np.average(angles, weights=weight), np.average(z, weights=weight)
        spread = np.sum(weight * (angles - mean_angle) ** 2)
        rate = np.sum(weight * (angles - mean_angle) * (z - mean_z)) / spread if spread > 0 else 0.0
        rate = max(rate, 1.0 / (right - left))  # the fraction need not rise everywhere
        center = float(np.clip(mean_angle - mean_z / rate, left, right))
    return Step(left, right, before, after, center, rate)
