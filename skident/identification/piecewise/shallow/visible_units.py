"""Candidate units of one hidden ReLU layer from logits with errors, on lines where no logit is lost."""

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import MAD, TINY
from skident.fitting.errors_of_fit import FitSample
from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from ...constants import DIRECTION_TOL, SECOND_DIFFERENCE
from .candidates import averaged, groups_of
from .units import ReLUUnits

_SPREADS = (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.06, 0.03)  # of the ends of lines, in standard deviations
_MIN_VISIBLE = 0.5  # share of points so spread that must have precise logits
_PROBED = 200  # points that decide the spread (budget)
_GRID = 2048  # intervals of a line (budget): a hundred units are some twenty apart
_FEWEST = 8  # points of a straight piece that count
_BENT = 12.0  # standard deviations of a second difference that is no error
_BESIDE = 0.4  # distance of the points of a gradient from their boundary, over that to the next boundary
# Their standard deviation over that distance, times the root of D: a line meets a boundary at an angle of about that.
_STEPS = (0.3, 0.1, 0.03)
_ROWS = 2.0  # points of a gradient per input
_SPARE_ROWS = 8  # beyond that
_STRAIGHT = 5.0  # standard deviations of the residuals of a gradient whose points share one linear piece
_SAME_ERRORS = 6.0  # standard errors within which two hyperplanes are one
_FEW_LINES = 15  # lines up to which every boundary counts
_PLANE_ERROR = 1e-6  # of a hyperplane: that of float32 inputs
_ROW_ROUNDS = 4  # of drawing rows, of which some are lost (budget)
_OCTAVES = (-2.0, 0.5)  # of the distance of rows, in units of the lines' spread
_BAND = 0.3  # distance of rows close to a hyperplane, in these


class _Boundaries(NamedTuple):
    """Boundaries on a line: positions (k,), and distances (k,) to the next boundary or end."""

    positions: np.ndarray
    free: np.ndarray


def measure_logit_error(oracle, spread, rng, n=_PROBED):
    """Standard deviation of logits over the bounds that the oracle gives, from second differences at random points."""
    U, E = spread * rng.standard_normal((n, oracle.n_inputs)), rng.standard_normal((n, oracle.n_inputs))
    E *= 1e-3 * spread
    before, after = U - E, U + E
    (a, e_a), (b, e_b), (c, e_c) = (oracle.query(V) for V in (before, 0.5 * (before + after), after))
    bound = np.max([e_a, e_b, e_c], axis=0)
    ratio = (np.abs(a - 2.0 * b + c) / bound[:, None])[np.isfinite(bound)]
    return max(MAD * float(np.median(ratio)) / SECOND_DIFFERENCE, TINY)


class VisibleUnits:
    """Units detected on lines through the region where no logit is lost."""

    def __init__(self, oracle, rng):
        self.oracle, self.rng, self.n_lines = oracle, rng, 0
        self.spread = self._visible_spread()
        self.scale = measure_logit_error(oracle, self.spread, rng)
        self.length_scale = self.spread * np.sqrt(oracle.n_inputs)  # usual distance of the points queried
        self._pool = None

    def _visible_spread(self):
        for spread in _SPREADS:
            error = self.oracle.query(spread * self.rng.standard_normal((_PROBED, self.oracle.n_inputs)))[1]
            if np.mean(np.isfinite(error)) >= _MIN_VISIBLE:
                return spread
        raise NotIdentified("activation boundaries", "certain", "the classifier is too confident everywhere.")

    def query(self, U):
        """Logits (n, m_L) and their standard deviations (n,), infinite where they are lost."""
        Y, error = self.oracle.query(U)
        return Y, self.scale * error

    def rows(self, units, n):
        """A `FitSample` of about n rows near and far from the center, half of them close to hyperplanes of units."""
        parts, missing = [], n
        for _ in range(_ROW_ROUNDS):
            U = self.spread * 2.0 ** self.rng.uniform(*_OCTAVES, (n, 1))
            U = U * self.rng.standard_normal((n, self.oracle.n_inputs))
            unit, near = self.rng.randint(len(units), size=n), self.rng.uniform(size=n) < 0.5
            z = np.einsum("ni,in->n", U, units.weights[:, unit]) + units.biases[unit]
            move = np.where(near, z - _BAND * self.spread * self.rng.standard_normal(n), 0.0)
            U = self.oracle.representable(U - move[:, None] * units.weights.T[unit])
            Y, std = self.query(U)
            visible = np.isfinite(std)
            parts.append((U[visible], Y[visible], std[visible, None]))
            missing -= int(visible.sum())
            if missing <= 0:
                break
        return FitSample(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def scan(self, n_lines, through=None):
        """Scan further lines, random ones or through points (k, D)."""
        for i in range(n_lines):
            check_deadline()
            self.n_lines += 1
            start, end = self.spread * self.rng.standard_normal((2, self.oracle.n_inputs))
            if through is not None and len(through):
                end = through[i % len(through)] + 0.3 * (through[i % len(through)] - start)
            line = self._visible_line(start, end)
            if line is not None:
                boundaries = self._boundaries_on(*line)
                if len(boundaries.positions):
                    self._add(*line, boundaries)

    def _visible_line(self, start, end):
        """Start and direction (of norm 1), and the interval of the longest visible part; None if there is none."""
        length = np.linalg.norm(end - start)
        direction, t = (end - start) / length, np.linspace(-0.25 * length, 1.25 * length, 129)
        lost = np.flatnonzero(~np.isfinite(self.query(start + t[:, None] * direction)[1]))
        borders = np.concatenate([[-1], lost, [len(t)]])
        k = int(np.argmax(np.diff(borders)))
        first, last = borders[k] + 1, borders[k + 1] - 1
        return None if last - first < 4 else (start, direction, t[first], t[last])

    def _boundaries_on(self, start, direction, low, high):
        """Boundaries between straight pieces of at least eight points of a grid."""
        t = np.linspace(low, high, _GRID + 1)
        Y, std = self.query(start + t[:, None] * direction)
        second = np.abs(Y[2:] - 2.0 * Y[1:-1] + Y[:-2])
        largest = np.maximum(np.maximum(std[2:], std[1:-1]), std[:-2])
        bent = np.concatenate([[True], second.max(axis=1) > _BENT * SECOND_DIFFERENCE * largest, [True]])
        # Pieces are runs of points that no second difference bends.
        edges = np.flatnonzero(np.diff(np.concatenate([[True], bent, [True]]).astype(int)))
        pieces = [(a, b) for a, b in edges.reshape(-1, 2) if b - a >= _FEWEST]
        positions = []
        for (a, b), (c, d) in zip(pieces[:-1], pieces[1:], strict=True):
            if c - b <= 2:
                positions.append(_intersection(t, Y, std, slice(a - 1, b + 1), slice(c - 1, d + 1)))
        positions = np.array([p for p in positions if p is not None])
        ends = np.concatenate([[low], positions, [high]])
        gaps = np.diff(ends)
        return _Boundaries(positions, np.minimum(gaps[:-1], gaps[1:]) if len(positions) else positions)

    def _add(self, start, direction, low, high, boundaries):
        """Add the units of the boundaries on a line, from the jumps of the gradient."""
        points = start + boundaries.positions[:, None] * direction
        found = []
        for x, free in zip(points, boundaries.free, strict=True):
            for step in _STEPS:
                unit = self._unit(x, _BESIDE * free * direction, step * _BESIDE * free / np.sqrt(len(x)))
                if unit is not None:
                    found.append(unit)
                    break
        if found:
            W, b, outgoing, errors = (np.array(part) for part in zip(*found, strict=True))
            units = ReLUUnits(W.T, b, outgoing, errors)
            self._pool = units if self._pool is None else self._pool.joined(units)

    def _unit(self, x, move, step):
        """Normal (D,), bias, outgoing weights (m_L,) and error of the unit whose boundary is at x; None if unclear."""
        sides = [self._gradient(x + sign * move, step) for sign in (1.0, -1.0)]
        if sides[0] is None or sides[1] is None:
            return None
        (after, e_after), (before, e_before) = sides
        U, s, Vt = svd(after - before, full_matrices=False)
        w = Vt[0]
        sign = 1.0 if w @ move > 0 else -1.0
        error = np.hypot(e_after, e_before) * np.sqrt(len(x)) / max(s[0], TINY)
        if error > DIRECTION_TOL or (len(s) > 1 and s[1] > 10.0 * error * s[0]):
            return None
        return w, -w @ x, sign * s[0] * U[:, 0], error + _PLANE_ERROR

    def _gradient(self, x, step):
        """Gradient (m_L, D) around x, and the standard error of its entries; None if it is not one there."""
        D = len(x)
        U = x + step * self.rng.standard_normal((int(_ROWS * D) + _SPARE_ROWS, D))
        Y, std = self.query(U)
        if not np.all(np.isfinite(std)):
            return None
        A = np.column_stack([np.ones(len(U)), (U - x) / step])
        coef = lapack.lstsq(A, Y, rcond=None)[0]
        residual = np.sqrt(np.mean((A @ coef - Y) ** 2) * len(U) / (len(U) - D - 1))
        if residual > _STRAIGHT * std.max():
            return None
        return coef[1:].T / step, max(residual, std.max()) / (step * np.sqrt(len(U) - D))

    def units(self):
        """The `ReLUUnits` of distinct hyperplanes, averaged; once many lines are scanned, of those detected twice."""
        if self._pool is None:
            return ReLUUnits(np.zeros((self.oracle.n_inputs, 0)), np.zeros(0), np.zeros((0, 1)), np.zeros(0))
        least = 2 if self.n_lines > _FEW_LINES else 1
        groups = groups_of(self._pool, self.length_scale, _SAME_ERRORS)
        return averaged(self._pool, [group for group in groups if len(group) >= least])


def _intersection(t, Y, std, left, right):
    """Where the straight lines through two pieces meet; None if not between them."""
    fits = [np.polyfit(t[piece] - t[left.stop], Y[piece], 1, w=1.0 / std[piece]) for piece in (left, right)]
    jump, gap = fits[1][0] - fits[0][0], fits[0][1] - fits[1][1]
    at = t[left.stop] + float(jump @ gap) / max(float(jump @ jump), TINY)
    margin = 2.0 * (t[1] - t[0])
    return at if t[left.stop - 1] - margin <= at <= t[right.start] + margin else None
