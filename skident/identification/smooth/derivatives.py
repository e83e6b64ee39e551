"""Mixed derivatives by the free units of a face, from differences; every point is queried once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Stencils", "curvature", "square_free"]


def square_free(units):
    """Stencil ``({((unit, sign), ...): weight}, order)`` of the mixed derivative by different units.

    Signs are equal within a point: two queries per subset of units, an error of the square of the step.
    """
    p, stencil = len(units), {}
    for subset in range(2**p):
        moved = [units[i] for i in range(p) if subset >> i & 1]
        for sign in (1, -1):
            point = tuple(sorted((i, sign) for i in moved))
            stencil[point] = stencil.get(point, 0.0) + 0.5 * sign**p * (-1.0) ** (p - len(moved))
    return stencil, p


def curvature(unit, others):
    """Stencil of the second derivative by one unit, and once by `others`: none or one."""
    stencil = {}
    for own, weight in ((((unit, 1),), 1.0), ((), -2.0), (((unit, -1),), 1.0)):
        beside = [(((j, 1),), 0.5) for j in others] + [(((j, -1),), -0.5) for j in others]
        for moved, factor in beside or [((), 1.0)]:
            stencil[tuple(sorted(own + moved))] = factor * weight
    return stencil, 2 + len(others)


@dataclass(frozen=True)
class Stencils:
    """Stencils as a matrix (s, q) of weights at q points (q, k), in steps of the free units; `orders` (s,)."""

    weights: np.ndarray
    points: np.ndarray
    orders: np.ndarray

    @classmethod
    def of(cls, stencils, n_free):
        """Those of a list of stencils, for so many free units."""
        index = {point: i for i, point in enumerate(dict.fromkeys(p for stencil, _ in stencils for p in stencil))}
        weights, points = np.zeros((len(stencils), len(index))), np.zeros((len(index), n_free))
        for row, (stencil, _) in zip(weights, stencils, strict=True):
            for point, weight in stencil.items():
                row[index[point]] += weight
        for point, i in index.items():
            for unit, sign in point:
                points[i, unit] = sign
        return cls(weights, points, np.array([order for _, order in stencils]))

    def derivatives(self, cube, face, step):
        """Derivatives (n, P, s) at the points of a face, and their rounding relative to eps (n, P, s)."""
        Y = cube.at(face.points[:, None] + step * (self.points @ face.moves))
        weights = self.weights / step ** self.orders[:, None]
        rounding = np.abs(Y).max(axis=1)[:, :, None] * np.linalg.norm(weights, axis=1)
        return np.einsum("st,ntp->nps", weights, Y), rounding
