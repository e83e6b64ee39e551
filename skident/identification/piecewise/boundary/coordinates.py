"""Labels in other coordinates: within the span of the first layer's weights, and where its units are active.

Each kind takes boundary points and logits back to inputs (`outward`, `composed`).
"""

from dataclasses import replace

import numpy as np

from skident.linalg import lapack

from .logits import Logits
from .points import bisect

_MARGIN = 1e-6  # of inputs from the walls of the region, in standard deviations of inputs
_DEPTHS = (0.01, 0.5)  # of drawn inputs behind the walls, in standard deviations, log-uniform
_MAX_MOVED = 30  # boundary points that are moved into the region (budget)
_RAISED = (0.003, 0.01, 0.03, 0.1, 1e-3)  # behind the walls, to which they are moved, in standard deviations
_GRID = np.array([-1, -0.5, -0.2, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.2, 0.5, 1.0])  # of segments there


class Projected:
    """Labels of ``x = y @ basis`` for orthonormal rows `basis` (r, D), in whose span all weights lie."""

    def __init__(self, outer, basis):
        self.outer, self.basis, self.root, self.note = outer, basis, outer.root, outer.note

    @property
    def classes(self):
        """Labels met so far."""
        return self.root.classes

    @property
    def n_features(self):
        """Number of coordinates."""
        return len(self.basis)

    @property
    def n_queries(self):
        """Queries so far, of all coordinates."""
        return self.root.n_queries

    def __call__(self, Y):
        """Indices of the labels (n,) of Y (n, r); -1 outside the input range."""
        return self.outer(Y @ self.basis)

    def room(self, y, d):
        """Length of the ray y + t d (r,) within the region that is queried."""
        return self.outer.room(y @ self.basis, d @ self.basis)

    def draw(self, n, rng, radii):
        """Coordinates (n, r) of inputs with log-uniform radii."""
        return self.outer.draw(n, rng, radii) @ self.basis.T

    def outward(self, Y):
        """Inputs (n, D) of coordinates Y (n, r)."""
        return self.outer.outward(np.reshape(Y, (-1, len(self.basis))) @ self.basis)

    def inward(self, X, pairs, U, rng):
        """Boundary points (x, pair, u) in coordinates, of points X (n, D) in inputs and directions U."""
        inside = self.outer.inward(X, pairs, U, rng)
        return [(self.basis @ x, pair, self.basis @ u) for x, pair, u in inside]

    def composed(self, logits):
        """Logits of inputs from those of coordinates."""
        return self.outer.composed(_composed(logits, self.basis, np.zeros(len(self.basis))))


class Peeled(Projected):
    """Labels where all units of the first layer are active: a network with one layer less in the coordinates y.

    The region ``planes @ (y, 1) > 0`` is a convex cone whose walls are the units' hyperplanes; units without a wall
    (`linear`) count as active everywhere.
    """

    def __init__(self, outer, planes, linear):
        super().__init__(outer, np.eye(len(planes)))
        self.planes, self.linear = planes, linear

    def heights(self, Y):
        """Pre-activations (n, m) of the first layer."""
        return Y @ self.planes[:, :-1].T + self.planes[:, -1]

    def at(self, H):
        """Coordinates (n, r) with pre-activations H (n, m)."""
        return lapack.solve(self.planes[:, :-1], (H - self.planes[:, -1]).T).T

    def __call__(self, Y):
        """Indices of the labels (n,) of Y (n, r); -1 outside the region and the input range."""
        seen = np.full(len(Y), -1)
        inside = np.all(self.heights(Y)[:, ~self.linear] > _MARGIN, axis=1)
        if np.any(inside):
            seen[inside] = super().__call__(Y[inside])
        return seen

    def room(self, y, d):
        """Length of the ray y + t d (r,) within the region."""
        heights, rates = self.heights(y[None])[0] - _MARGIN, self.planes[:, :-1] @ d
        towards = (rates < 0) & ~self.linear
        return min(super().room(y, d), np.min(heights[towards] / -rates[towards], initial=np.inf))

    def draw(self, n, rng, radii):
        """Coordinates (n, r) in the region: activations of random inputs, moved off the walls."""
        H = self.heights(super().draw(n, rng, radii))
        depth = np.exp(rng.uniform(*np.log(_DEPTHS), (n, 1)))
        raised = np.maximum(H, 0.0) + depth * np.abs(rng.standard_normal(H.shape)) + 10 * _MARGIN
        return self.at(np.where(self.linear, H, raised))

    def inward(self, X, pairs, U, rng):
        """Boundary points (x, pair, u) in the region near boundary points X of the inputs."""
        found = []
        for x, _, _ in self.outer.inward(X, pairs, U, rng)[:_MAX_MOVED]:
            h = self.heights(x[None])[0]
            h = np.where(self.linear, h, np.maximum(h, 0.0))
            for depth in _RAISED:
                y = self.at(h + ~self.linear * depth * (0.1 + np.abs(rng.standard_normal(len(h)))))
                u = rng.standard_normal(len(y))
                u /= np.linalg.norm(u)
                seen = self(y + _GRID[:, None] * u)
                k = np.flatnonzero((seen[1:] != seen[:-1]) & (seen[1:] >= 0) & (seen[:-1] >= 0))
                if len(k):
                    k = k[np.argmin(np.abs(_GRID[k] + _GRID[k + 1]))]
                    t, below, above = bisect(self, y[None], u, _GRID[k], _GRID[k + 1], seen[k])
                    found.append((y + t[0] * u, (int(above[0]), int(below[0])), u))
                    break
        return found

    def composed(self, logits):
        """Logits of inputs from those of coordinates, in which they have one hidden layer."""
        to_y = lapack.inv(self.planes[:, :-1])  # y = to_y (h - b)
        second = _composed(logits, to_y, -to_y @ self.planes[:, -1])
        return self.outer.composed(replace(second, first=self.planes, linear=self.linear))


def _composed(logits, to_y, offset):
    """Logits of x with coordinates ``y = to_y x + offset`` (r,); of two hidden layers, their first one is composed."""
    if logits.first is not None:
        first = np.column_stack([logits.first[:, :-1] @ to_y, logits.first[:, -1] + logits.first[:, :-1] @ offset])
        return replace(logits, first=first)
    H, m = logits.hyperplanes, len(logits.hyperplanes)
    slopes = logits.coef[m:-1]
    return Logits(
        np.column_stack([H[:, :-1] @ to_y, H[:, -1] + H[:, :-1] @ offset]),
        np.vstack([logits.coef[:m], to_y.T @ slopes, logits.coef[-1] + offset @ slopes]),
    )
