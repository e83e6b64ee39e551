"""Half circles far away, on which a saturated network answers with a step function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from skident.oracle import NotIdentified

__all__ = ["Circle", "Step", "grid_without", "known_steps", "scan"]

_GRID = 32  # cells of the first look at a half circle
_MANY_CELLS = 4096  # so fine a grid that a step function moves on few of its cells
_SMALL = 1e-2  # part of a cell's movement below which half of it is taken as the tail of a step in the other half
# Part of the usual distance of steps within which a run of moving cells is taken as one step. With noise, circles are
# so small that steps are not much narrower.
_CROWDED, _CROWDED_NOISY = 0.01, 0.1
_FINEST = 1e-13  # width of a cell, in radians, below which a step is a jump
_SATURATED = 25.0  # pre-activation beyond which tanh, sigmoid and erf are constant in float64
_MAX_STEPS = 2000  # followed on one half circle


@dataclass(frozen=True)
class Circle:
    """A circle around the centre.

    Attributes
    ----------
    frame : ndarray of shape (D, 2)
        Orthonormal basis of its plane.
    radius : float
    """

    frame: np.ndarray
    radius: float

    def at(self, angles):
        """Points of the circle.

        Parameters
        ----------
        angles : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, D)
        """
        return self.radius * (np.cos(angles)[:, None] * self.frame[:, 0] + np.sin(angles)[:, None] * self.frame[:, 1])

    def tangents(self, angles):
        """Unit vectors along the circle, towards larger angles.

        Parameters
        ----------
        angles : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, D)
        """
        return Circle(self.frame, 1.0).at(angles + 0.5 * np.pi)

    def larger(self, factor):
        """The circle in the same plane with another radius.

        Parameters
        ----------
        factor : float

        Returns
        -------
        Circle
        """
        return Circle(self.frame, factor * self.radius)

    def crossings(self, weights, biases):
        """Where hyperplanes ``weights.T u + biases = 0`` cross the half circle.

        Parameters
        ----------
        weights : ndarray of shape (D, m)
        biases : ndarray of shape (m,)

        Returns
        -------
        angles : ndarray of shape (m,)
            In [0, pi) or so; NaN for a hyperplane that the circle does not reach.
        slopes : ndarray of shape (m,)
            Largest change of ``weights.T u`` with the angle.
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
    """A stretch of the circle on which the answer goes from one constant to another.

    Attributes
    ----------
    left, right : float
        Angles.
    before, after : ndarray of shape (m_L,)
        Answers there.
    centre, rate : float
        Angle where, and slope at which, ``(1 + tanh z) / 2`` fits the answers' progress from `before` to `after`; the
        rate is infinite for a jump.
    """

    left: float
    right: float
    before: np.ndarray
    after: np.ndarray
    centre: float
    rate: float


def _moving_above(answers, noisy):
    """Distance of two answers above which they differ.

    Parameters
    ----------
    answers : ndarray of shape (n, m_L)
        In units of the noise, if there is some.
    noisy : bool
        False: the answers are exact to rounding, and what is below 1e-9 of their range is the tail of a step.
    """
    if noisy:
        return np.sqrt(2.0 * chi2.isf(1e-7, answers.shape[1]))
    spread = max(np.ptp(answers, axis=0).max(), np.finfo(float).tiny)
    return 1e-9 * spread + 64 * np.finfo(float).eps * np.abs(answers).max()


def known_steps(steps, angles, margins):
    """Which steps are hyperplanes that are known.

    Parameters
    ----------
    steps : list of Step
    angles, margins : ndarray of shape (m,)
        Where known hyperplanes cross, and how far off that may be. Each explains one step at most: the nearest.

    Returns
    -------
    ndarray of bool, shape (t,)
    """
    known = np.zeros(len(steps), dtype=bool)
    if len(steps) == 0 or len(angles) == 0:
        return known
    left, right = np.array([s.left for s in steps]), np.array([s.right for s in steps])
    widths = np.maximum(right - left, 1e-15)
    off = np.maximum(0.0, np.maximum(left - angles[:, None], angles[:, None] - right))
    ratio = off / (0.1 * widths + margins[:, None])
    free = np.ones(len(angles), dtype=bool)
    for flat in np.argsort(np.where(np.isnan(ratio), np.inf, ratio), axis=None):
        unit, step = np.unravel_index(flat, ratio.shape)
        if not ratio[unit, step] < 1.0:
            break
        if free[unit] and not known[step]:
            free[unit], known[step] = False, True
    return known


def grid_without(angles, slopes, margins):
    """Cells of a first look at the half circle, known steps apart.

    Parameters
    ----------
    angles, slopes, margins : ndarray of shape (m,)
        Of known hyperplanes: where they cross, how steeply, and how far off that may be. Where the place is sharp, the
        step is left out together with its tails.

    Returns
    -------
    edges : ndarray of shape (n,)
    known : ndarray of bool, shape (n - 1,)
        Which cells hold nothing but a known step.
    """
    edges = np.linspace(0.0, np.pi, _GRID + 1)
    half = _SATURATED / slopes + margins
    sharp = (half < 0.1 * np.pi / max(len(angles), 1)) & (angles > half) & (angles < np.pi - half)
    left, right = angles[sharp] - half[sharp], angles[sharp] + half[sharp]
    inside = np.any((edges[:, None] > left) & (edges[:, None] < right), axis=1)
    edges = np.sort(np.concatenate([edges[~inside], left, right]))
    middle = 0.5 * (edges[:-1] + edges[1:])
    return edges, np.any((middle[:, None] > left) & (middle[:, None] < right), axis=1)


def scan(ask, edges, skipped, noisy):
    """All stretches of a half circle where the answer moves, by bisection of the cells whose ends differ.

    Parameters
    ----------
    ask : callable
        Angles (n,) to answers (n, m_L).
    edges : ndarray of shape (n,)
        Angles of the first look.
    skipped : ndarray of shape (n - 1,)
        Cells that are not looked into.
    noisy : bool
        Whether answers come in units of their noise; else they are exact.

    Returns
    -------
    list of Step

    Raises
    ------
    NotIdentified
        (a ValueError) If the answer moves on a large part of the half circle, or at too many places to be followed.

    Notes
    -----
    A stretch is left alone as soon as three cells in a row move: the points between them lie on the slope. About
    ``log2(32 cells / width) + 3`` queries a step. With noise a step may be so low that its parts are lost in it before
    there are three: then it is what was seen last.
    """
    F = ask(edges)
    tol = _moving_above(F, noisy)
    cells = edges[:-1], edges[1:], F[:-1], F[1:]
    active = (_distance(cells) > tol) & ~skipped
    cells, n_cells, steps = tuple(c[active] for c in cells), _GRID, []
    while len(cells[0]):
        n = len(cells[0])
        if (n_cells >= _MANY_CELLS and n > 0.3 * n_cells) or n > 16 * _MAX_STEPS:
            raise NotIdentified(
                "saturation",
                "unbounded",
                f"the answers move on {n} of {n_cells} stretches of a large half circle: the first layer does not "
                "saturate there.",
            )
        runs = _runs(cells)
        crowded = (len(runs) + len(steps)) / (np.pi * (_CROWDED_NOISY if noisy else _CROWDED))
        settled = [r for r in runs if _is_settled(cells, r, crowded, n_cells)]
        steps += [_step(tuple(c[r] for c in cells)) for r in settled]
        rest = np.setdiff1d(np.arange(n), np.concatenate([np.empty(0, dtype=int), *settled]))
        cells, lost = _halved(ask, tuple(c[rest] for c in cells), tol)
        steps += [_step(halves) for halves in lost] if noisy else []
        n_cells *= 2
    return sorted(steps, key=lambda step: step.left)


def _distance(cells):
    return np.linalg.norm(cells[3] - cells[2], axis=1)


def _runs(cells):
    """Indices of adjacent cells, run by run."""
    left, right = cells[:2]
    return np.split(np.arange(len(left)), np.flatnonzero(left[1:] > right[:-1] + 1e-15) + 1)


def _is_settled(cells, run, crowded, n_cells):
    """Whether a run of moving cells shows one step's slope, or as much of it as there is to see."""
    left, right = cells[0][run[0]], cells[1][run[-1]]
    if right - left < len(run) * _FINEST:
        return True
    # Steps side by side in cells that are not yet narrow would make a run, too.
    narrow = (right - left) * crowded < 1.0 or (len(run) >= 16 and n_cells >= _MANY_CELLS)
    return len(run) >= 3 and narrow


def _halved(ask, cells, tol):
    """The halves that move of all cells, and all halves of the runs of which none does: steps split up into noise."""
    left, right, Fl, Fr = cells
    n = len(left)
    if n == 0:
        return cells, []
    middle = 0.5 * (left + right)
    Fm = ask(middle)
    halves = (
        np.stack([left, middle], axis=1).ravel(),
        np.stack([middle, right], axis=1).ravel(),
        np.stack([Fl, Fm], axis=1).reshape(2 * n, -1),
        np.stack([Fm, Fr], axis=1).reshape(2 * n, -1),
    )
    moved = _distance(halves)
    active = moved > np.maximum(tol, _SMALL * np.repeat(_distance(cells), 2))
    lost = [
        np.ravel(2 * run[:, None] + [0, 1]) for run in _runs(cells) if not active[2 * run[0] : 2 * run[-1] + 2].any()
    ]
    return tuple(h[active] for h in halves), [tuple(h[some] for h in halves) for some in lost]


def _step(cells):
    """One step from a run of cells: (1 + tanh z) / 2 through the progress at the points inside."""
    left, right, before, after = cells[0][0], cells[1][-1], cells[2][0], cells[3][-1]
    jump = after - before
    p = (cells[3][:-1] - before) @ jump / max(jump @ jump, np.finfo(float).tiny)
    centre, rate = 0.5 * (left + right), np.inf
    if len(p):
        p = np.clip(p, 5e-3, 1.0 - 5e-3)
        angles, z, weight = cells[1][:-1], np.arctanh(2.0 * p - 1.0), (p * (1.0 - p)) ** 2
        mean_angle, mean_z = np.average(angles, weights=weight), np.average(z, weights=weight)
        spread = np.sum(weight * (angles - mean_angle) ** 2)
        rate = np.sum(weight * (angles - mean_angle) * (z - mean_z)) / spread if spread > 0 else 0.0
        rate = max(rate, 1.0 / (right - left))  # the progress need not rise everywhere
        centre = float(np.clip(mean_angle - mean_z / rate, left, right))
    return Step(left, right, before, after, centre, rate)
