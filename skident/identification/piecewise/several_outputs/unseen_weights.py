"""Weights of the second layer whose first-layer unit was inactive at all critical points so far, from short lines."""

import numpy as np
from scipy.optimize import brentq

from skident.budget.constants import TINY
from skident.oracle import NotIdentified

from ...constants import SPREAD, TRIES
from .shared_jacobians import scanned

_DISTANCE = 0.05  # of points from the boundary of the inactive unit, over the scale there: errors are inverse to it
_FARTHER = (2.0, 6.0)  # `SPREAD` once all weights are known
_NEARER = (0.01, 0.03)  # factors of both, nearer than which all units are as active as at known critical points
_NEAREST_POINTS = 40  # points of which the nearest with a predicted critical point are tried
_GRID = 41  # positions on the line through each at which the unit is predicted
_REACH = 3.0  # of that line, over the scale there
_UNKNOWN_FACTOR = 2.0  # of an unknown weight over the largest known one
_PAIRS = 3  # first pairs of points on a short line: it crosses few boundaries
_ROOT_TOL = 1e-3  # of a predicted position, over a step between positions at which the unit is predicted
_MOST_CROSSED = 40  # boundaries of other units on it (budget)
_ERROR = 0.2  # of a known weight whose critical points are too near


class UnseenWeights:
    """Weights of a unit of the second layer that one critical point each determines, and the short lines with these.

    The first layer has weights W (D, m_1) and biases b. The unit has weights and bias v (m_1 + 1,) but for those that
    are `unseen` (m_1,).
    """

    def __init__(self, space, first, unit, v, unseen, rng):
        self.space, (self.W, self.b), self.direction, self.rng = space, first, unit.direction, rng
        self.v, self.unseen, self.points, self.lines = v.copy(), unseen[:-1].copy(), unit.points, []

    def measure(self, same_direction):
        """Determine one weight after the other, until all are known or none of the others is reached."""
        todo, near, left = np.flatnonzero(self.unseen), False, 0
        while self.unseen.sum() not in (0, left):
            left = self.unseen.sum()
            for i in np.flatnonzero(self.unseen):
                if self._cross(i, (1.0, 1.0), same_direction):
                    continue
                near |= self._cross(i, _NEARER, same_direction)
        if near and not self.unseen.any():  # all other weights are known farther away as well
            for i in todo:
                self._cross(i, _FARTHER, same_direction)

    def _cross(self, i, factors, same_direction):
        """Whether a short line crosses the unit where unit i of the first layer is active, which shows its weight."""
        for origin, direction, t, half in self._windows(i, factors):
            line = self._scanned(origin, direction, t - half, t + half)
            same = [] if line is None else np.flatnonzero(line.units @ self.direction > 1.0 - same_direction)
            if len(same) == 1:
                self._add(i, line.only(same))
                return True
        return False

    def _add(self, i, line):
        z = np.append(np.maximum(line.points[0] @ self.W + self.b, 0.0), 1.0)
        self.lines.append(line)
        if self.unseen[i]:
            self.v[i] = 0.0
            self.v[i] = -(z @ self.v) / max(z[i], TINY)
            self.unseen[i], self.points = False, np.concatenate([self.points, line.points])

    def _scanned(self, origin, direction, low, high):
        options = {"length_scale": self.space.unit, "n_pairs": _PAIRS, "max_boundaries": _MOST_CROSSED}
        try:
            return scanned(self.space.seen_from(origin), origin, direction, low, high, self.rng, **options)
        except NotIdentified:
            return None

    def _windows(self, i, factors):
        """Origins, directions (D,), positions and half lengths of a few short lines, the best first.

        On them unit i of the first layer is active by a little, and all other active ones have known weights.
        """
        b, w = self.b, self.W[:, i]
        known = np.where(np.append(self.unseen, False), 0.0, self.v)
        P, depth, order, scales = self._points_beside(i, factors)
        G = ((P @ self.W + b > 0.0) * known[:-1]) @ self.W.T
        G -= (G @ w / (w @ w))[:, None] * w
        G /= np.maximum(np.linalg.norm(G, axis=1), TINY)[:, None]
        Z, slopes, T = P @ self.W + b, G @ self.W, scales[:, None] * np.linspace(-_REACH, _REACH, _GRID)
        F = np.maximum(Z[:, None] + T[:, :, None] * slopes[:, None], 0.0) @ known[:-1] + known[-1]
        others = self.unseen & (np.arange(len(b)) != i)
        unknown = (_UNKNOWN_FACTOR if self.unseen[i] else _ERROR) * np.abs(known[:-1]).max()
        found, signs = [], F[:, :-1] * F[:, 1:] < 0.0
        for k in order:
            for j in np.flatnonzero(signs[k]):
                t, slope = _root((Z[k], slopes[k]), known, T[k, j], T[k, j + 1])
                half = unknown * depth[k] / max(abs(slope), TINY)
                ends = Z[k] + np.array([[t - half], [t + half]]) * slopes[k]
                if not np.any(ends[:, others] > 0.0) and half < _REACH * scales[k]:
                    found.append((P[k], G[k], t, half))
            if len(found) >= TRIES:
                break
        return found[:TRIES]

    def _points_beside(self, i, factors):
        """Points (n, D) where unit i is active by a depth (n,), their order, the deepest first, and scales (n,)."""
        w, rng = self.W[:, i], self.rng
        P = self.points[rng.randint(len(self.points), size=_NEAREST_POINTS)]
        scales = (self.space.unit + np.linalg.norm(P, axis=1)) / np.sqrt(len(w))
        spreads, distances = (np.exp(rng.uniform(*np.sort([np.log(factor), 0.0]), len(P))) for factor in factors)
        P = P + (SPREAD * spreads * scales)[:, None] * rng.standard_normal(P.shape)
        depth = _DISTANCE * distances * scales * np.linalg.norm(w)
        P += ((depth - P @ w - self.b[i]) / (w @ w))[:, None] * w
        return P, depth, np.lexsort([scales, -distances]), scales


def _root(line, v, low, high):
    """A zero of ``v . relu(z)`` on a line of pre-activations between positions of other signs, and the slope there."""

    def at(t):
        return np.maximum(line[0] + t * line[1], 0.0) @ v[:-1] + v[-1]

    t = brentq(at, low, high, xtol=_ROOT_TOL * (high - low)) if at(low) * at(high) < 0.0 else low  # rounding of zero
    return t, ((line[0] + t * line[1] > 0.0) * line[1]) @ v[:-1]
