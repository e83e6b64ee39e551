"""Mixed derivatives by the free units of a face, from differences; every point is queried once."""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from skident.budget import check_deadline

from .cube import outputs_of, preactivations_of

# Steps and weights of the central difference of an order.
_CENTRAL = {
    1: ((1, 0.5), (-1, -0.5)),
    2: ((1, 1.0), (0, -2.0), (-1, 1.0)),
    3: ((2, 0.5), (1, -1.0), (-1, 1.0), (-2, -0.5)),
    4: ((2, 1.0), (1, -4.0), (0, 6.0), (-1, -4.0), (-2, 1.0)),
}


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


def mixed(units):
    """Stencil of the mixed derivative by units of which some may be the same: a product of central differences."""
    repeated = Counter(units)
    if max(repeated.values(), default=0) < 2:
        return square_free(units)
    stencil = {}
    for terms in product(*(_CENTRAL[times] for times in repeated.values())):
        check_deadline()
        moved = [(unit, steps) for unit, (steps, _) in zip(repeated, terms, strict=True) if steps]
        stencil[tuple(sorted(moved))] = prod(weight for _, weight in terms)
    return stencil, len(units)


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
            for unit, steps in point:
                points[i, unit] = steps
        return cls(weights, points, np.array([order for _, order in stencils]))

    def derivatives(self, cube, face, step):
        """Derivatives (n, P, s) at the points of a face, and their rounding relative to eps (n, P, s).

        They are by the outputs of the free units, mapped from their limits to [-1, 1], as norms and biases are known.
        """
        Z = face.Z[:, None, face.free]
        moved = preactivations_of(cube.g, outputs_of(cube.g, Z) + step * self.points) - Z
        Y = cube.at(face.points[:, None] + moved @ face.moves)
        weights = self.weights / step ** self.orders[:, None]
        rounding = np.abs(Y).max(axis=1)[:, :, None] * np.linalg.norm(weights, axis=1)
        return np.einsum("st,ntp->nps", weights, Y), rounding
