"""The boundary of two classes as far as its units are known: a difference of logits, and paths on its zero set."""

from dataclasses import dataclass

import numpy as np

from ...constants import BRACKETS, EXPLAINED_DISTANCE, NEAR_OFFSET
from .logits import Logits, refined
from .points import PARTS, bisect, bracket, sizes

_TO_WALL = 0.9  # of the way to the end of the region that is queried, at which a path ends
_MAX_PIECES = 60  # facets per path (budget)
_SHORTEST = 1e-3  # of a path's last piece, in standard deviations
_AHEAD = 1e-10  # distance of a hyperplane from the start of a piece that still counts as ahead
_FRACTIONS = np.array([0.02, 0.1, 0.25, 0.5, 0.75, 1 - 1e-7])  # of a path's length, at which the boundary is queried
_BEND_TOL = 1e-7  # of a bend's position along a path
_BEFORE = np.array([0.5, 0.1, 1e-3, 0.0])  # of the way before a departure, at which both labels are checked
_MAX_SIDES = 6  # bisections of a departure, on alternating sides
_STEP = 0.3  # beyond a known hyperplane, at which its coefficient is measured
_KEPT = 1e-6  # of combinations that few points determine: rounding would move them (rounding)
_MAX_RESIDUAL = 1e-10  # of a fit; more comes from points that belong to unknown units
_MIN_EFFECT = 1e-12  # coefficient of a unit below which rounding explains it


@dataclass(frozen=True)
class Path:
    """Straight pieces on facets: starts and directions (n, D), lengths (n,), planes (n, D + 1); a barrier or None.

    A barrier is the index of a known hyperplane at the path's end whose coefficient is unknown on this surface.
    """

    starts: np.ndarray
    directions: np.ndarray
    lengths: np.ndarray
    planes: np.ndarray
    barrier: int | None

    def at(self, s):
        """Points (n, D) at arc lengths s (n,) and the indices of their pieces."""
        ends = np.cumsum(self.lengths)
        i = np.minimum(np.searchsorted(ends, s), len(ends) - 1)
        return self.starts[i] + (s - ends[i] + self.lengths[i])[:, None] * self.directions[i], i

    def before_walls(self, room):
        """The path up to most of the way to a wall of the convex region that bounds each ray; `room` gives lengths."""
        for i, (x, d, length) in enumerate(zip(self.starts, self.directions, self.lengths, strict=True)):
            if (end := _TO_WALL * room(x, d)) < length:
                lengths = np.append(self.lengths[:i], end)
                return Path(self.starts[: i + 1], self.directions[: i + 1], lengths, self.planes[: i + 1], None)
        return self

    def normals(self, i):
        """Unit normals (n, D) of pieces i."""
        n = self.planes[i, :-1]
        return n / np.linalg.norm(n, axis=1)[:, None]


@dataclass(frozen=True)
class Touch:
    """Where a path leaves the boundary: arc length, point and piece; whether a class beside the pair lies there."""

    arc: float
    point: np.ndarray
    piece: int
    third_class: bool


class Surface:
    """Difference of two logits ``plane @ (x, 1) + sum_k coef_k |z_k(x)|``, positive for the label pair[0].

    Units whose coefficient is unknown (NaN) are part of `plane`: the surface holds on one side of them.
    """

    def __init__(self, facet, units):
        self.pair, self.plane, self.units, self.base = facet.pair, facet.plane.copy(), units, facet
        self.points, self._coef = [facet.point], np.zeros(0)

    @property
    def coef(self):
        """Coefficients (m,) of the known units."""
        missing = len(self.units.hyperplanes) - len(self._coef)
        self._coef = np.append(self._coef, np.full(missing, np.nan))
        return self._coef

    def signs(self, x):
        """Signs (m,) of the known units' pre-activations at x (D,)."""
        return np.sign(self.units.hyperplanes @ np.append(x, 1.0))

    def plane_at(self, signs):
        """Plane (D + 1,) of the linear piece with these signs."""
        return self.plane + np.nan_to_num(self.coef * signs) @ self.units.hyperplanes

    def explains(self, x):
        """Whether the boundary point x (D,) lies on the surface."""
        plane = self.plane_at(self.signs(x))
        return abs(plane @ np.append(x, 1.0)) < EXPLAINED_DISTANCE * np.linalg.norm(plane)

    def learn(self, k, coef, sign):
        """Set the coefficient of unit k, measured from its side `sign`."""
        self.coef[k] = coef
        self.plane = self.plane - coef * sign * self.units.hyperplanes[k]

    def refine(self, X):
        """Gauss-Newton of all units with known coefficients over those boundary points X (n, D) that they explain."""
        known, H = np.flatnonzero(~np.isnan(self.coef)), self.units.hyperplanes
        column = np.append(self.coef[known], self.plane)
        logits = Logits(H[known], np.column_stack([np.zeros(len(column)), column]))
        pairs = np.tile([1, 0], (len(X), 1))
        own = logits.distances(X, pairs) < EXPLAINED_DISTANCE
        found, worst = refined(logits, X[own], pairs[own], _KEPT)
        if worst < _MAX_RESIDUAL:
            column = found.coef[:, 1] * np.linalg.norm(column)
            H[known], self._coef[known], self.plane = found.hyperplanes, column[: len(known)], column[len(known) :]

    def path(self, x, target):
        """Path from x (D,) towards `target`, across hyperplanes with known coefficients."""
        H, pieces, last, barrier = self.units.hyperplanes, [], None, None
        signs = self.signs(x)
        plane = self.plane_at(signs)
        for _ in range(_MAX_PIECES):
            n = plane[:-1] / np.linalg.norm(plane[:-1])
            d = target - x
            d = d - (d @ n) * n
            length = np.linalg.norm(d)
            if length < _SHORTEST or (last is not None and signs[last] * (H[last, :-1] @ d) <= 0):
                break
            d /= length
            t, k = _next(H, x, d, last)
            pieces.append((x, d, min(t, length), plane))
            if t >= length:
                break
            x, last = x + t * d, k
            if np.isnan(self.coef[k]):
                barrier = k
                break
            plane = plane - 2 * self.coef[k] * signs[k] * H[k]
            signs[k] = -signs[k]
        columns = [np.array(c) for c in zip(*pieces, strict=True)] if pieces else [np.zeros(0)] * 4
        return Path(*columns, barrier)

    def cross(self, labels, path):
        """Measure the coefficient of the barrier at a path's end; the boundary point beyond, or None."""
        k, d = path.barrier, path.directions[-1]
        ridge = path.starts[-1] + path.lengths[-1] * d
        plane, w = path.planes[-1], self.units.hyperplanes[k]
        n = plane[:-1] / np.linalg.norm(plane[:-1])
        room = _next(self.units.hyperplanes, ridge, d, k)[0]
        step = min(_STEP, 0.5 * room)
        for shrink in (1.0, 0.1):
            x = crossing(labels, ridge + shrink * step * d, n, shrink * step, self.pair)
            if x is None or (z := w @ np.append(x, 1.0)) * (w[:-1] @ d) <= 0:
                continue
            coef = -(plane @ np.append(x, 1.0)) / (2 * abs(z))
            coef = 0.0 if abs(coef) < _MIN_EFFECT * np.linalg.norm(plane[:-1]) else coef
            after = plane + 2 * coef * np.sign(z) * w
            middle = (ridge + x)[None] / 2
            u = after[:-1] / np.linalg.norm(after[:-1])
            if bracket(labels, middle, u, NEAR_OFFSET * sizes(middle), self.pair)[0]:
                self.learn(k, coef, -np.sign(z))
                self.points.append(x)
                return x
        return None


def crossing(labels, x, n, step, pair, tol=None):
    """The boundary point on the line x + t n near t = 0, bisected to `tol` or rounding; None if there is none."""
    for factor in BRACKETS:
        if bracket(labels, x[None], n, factor * step, pair)[0]:
            size = factor * step
            t, _, above = bisect(labels, x[None], n, -size, size, pair[1], tol)
            return x + t[0] * n if above[0] == pair[0] else None
    return None


def _next(H, x, d, last):
    """Distance from x along d to the next hyperplane except `last`, and its index."""
    if not len(H):
        return np.inf, -1
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -(H @ np.append(x, 1.0)) / (H[:, :-1] @ d)
    t = np.where(np.isfinite(t) & (t > _AHEAD), t, np.inf)
    if last is not None:
        t[last] = np.inf
    k = int(np.argmin(t))
    return t[k], k


def _labels_beside(labels, path, s):
    """Labels above and below the path at arc lengths s (n,): (n, 2)."""
    X, i = path.at(s)
    step = (NEAR_OFFSET * sizes(X))[:, None] * path.normals(i)
    return labels(np.vstack([X + step, X - step])).reshape(2, -1).T


def departure(labels, path, pair):
    """Where the boundary leaves a path: a `Touch`, or None if it follows the path to its end."""
    s = _FRACTIONS * path.lengths.sum()
    seen = _labels_beside(labels, path, s)
    bad = np.flatnonzero((seen[:, 0] != pair[0]) | (seen[:, 1] != pair[1]))
    if not len(bad):
        return None
    first, high, wrong = (s[bad[0] - 1] if bad[0] else 0.0), s[bad[0]], seen[bad[0]] != pair
    for _ in range(_MAX_SIDES):
        low = _bisect_side(labels, path, pair, int(np.argmax(wrong)), first, high)
        before = low - (low - first) * _BEFORE
        seen = _labels_beside(labels, path, before)
        bad = np.flatnonzero(np.any(seen != pair, axis=1))
        if not len(bad):
            break
        high, wrong = before[bad[0]], seen[bad[0]] != pair
    else:
        return Touch(0.0, path.starts[0], 0, True)
    X, i = path.at(np.array([low]))
    beside = labels(_around(X[0], path.directions[i[0]], path.normals(i)[0]))
    return Touch(low, X[0], int(i[0]), bool(np.any((beside != pair[0]) & (beside != pair[1]))))


def _bisect_side(labels, path, pair, side, low, high):
    """The arc length between low and high from which the label on one side of a path is not that of the pair.

    The other side may depart earlier, where the path then crosses the boundary.
    """
    while high - low > _BEND_TOL * (1.0 + high):
        s = np.linspace(low, high, PARTS + 1)
        X, i = path.at(s[1:-1])
        step = (1 - 2 * side) * (NEAR_OFFSET * sizes(X))[:, None] * path.normals(i)
        first = int(np.argmax(np.append(labels(X + step) != pair[side], True)))
        low, high = s[first], s[first + 1]
    return low


def _around(x, d, n):
    """Points (3, D) just beyond x, above, on and below the surface, at which a third class would appear."""
    return x + 1e-4 * d + 5e-4 * np.array([[1.0], [0.0], [-1.0]]) * n
