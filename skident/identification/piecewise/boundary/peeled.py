"""Labels in other coordinates: within the span of the first layer's weights, and where its units are active."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack

__all__ = ["Peeled", "Projected"]

_MARGIN = 1e-6  # of inputs from the walls of the region, in standard deviations of inputs
_DEPTHS = (0.01, 0.5)  # of drawn inputs behind the walls, in standard deviations, log-uniform


class Projected:
    """Labels of ``x = y @ basis`` for orthonormal rows `basis` (r, D), in whose span all weights lie."""

    def __init__(self, labels, basis):
        self.outer, self.basis = labels, basis

    @property
    def classes(self):
        """Labels met so far."""
        return self.outer.classes

    @property
    def n_features(self):
        """Number of coordinates."""
        return len(self.basis)

    @property
    def n_queries(self):
        """Queries so far, of all coordinates."""
        return self.outer.n_queries

    def note(self, n_units):
        """Note how many units a search has recovered."""
        self.outer.note(n_units)

    def __call__(self, Y):
        """Indices of the labels (n,) of Y (n, r); -1 outside the input range."""
        return self.outer(Y @ self.basis)

    def room(self, y, d):
        """Length of the ray y + t d (r,) within the region that is queried."""
        return self.outer.room(y @ self.basis, d @ self.basis)

    def draw(self, n, rng, radii):
        """Coordinates (n, r) of inputs with log-uniform radii."""
        return self.outer.draw(n, rng, radii) @ self.basis.T


class Peeled(Projected):
    """Labels where all units of the first layer are active: a network with one layer less in the coordinates y.

    The region ``planes @ (y, 1) > 0`` is a convex cone whose walls are the units' hyperplanes; units without a wall
    (`linear`) count as active everywhere.
    """

    def __init__(self, labels, basis, planes, linear):
        super().__init__(labels, basis)
        self.planes, self.linear = planes, linear

    def heights(self, Y):
        """Pre-activations (n, m) of the first layer."""
        return Y @ self.planes[:, :-1].T + self.planes[:, -1]

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
        H = np.where(self.linear, H, raised)
        return lapack.solve(self.planes[:, :-1], (H - self.planes[:, -1]).T).T
