"""Equations of a unit of the second layer, from its critical points and normals."""

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack, svd

_NULL = 1e-6  # smallest singular value of a unit's equations, over the largest: errors of normals
_GAP = 1e2  # ratio of the next one and that, if the equations determine the unit
_LEAST_NEXT = 1e-5  # least next one, over the largest
SPARE_EQUATIONS = 3  # beyond the weights, if few critical points determine them: a wrong one leaves a residual
_ZERO = 1e-4  # pre-activation at a critical point, over the length of its outputs: errors of normals, not of points


def determined_weights(W, b, unit):
    """Weights and bias (m_1 + 1,) of a unit or None, which of them are not determined, spare equations, and a unit.

    That is the unit without critical points that contradict others. Points without normals may add more weights than
    equations: if so, those with normals determine some. If one of these is wrong, the most that agree count.
    """
    known = np.flatnonzero(unit.known)
    for part in (unit, unit.only(known)):
        v, unseen, spare = _solution(W, b, part)
        if v is not None and (part is unit or spare >= SPARE_EQUATIONS):
            return v, unseen, spare, part
    best = None
    for i in known:
        chosen, solution = _agreeing(W, b, unit, i, known)
        if chosen and (best is None or len(chosen) > len(best[0])):
            best = chosen, solution
        if best is not None and 2 * len(best[0]) > len(known):
            break
    if best is None:
        return None, unseen, 0, unit
    chosen, solution = best
    others = np.flatnonzero(~unit.known & ~_contradicts(W, b, unit, *solution[:2]))
    part = unit.only(np.concatenate([chosen, others]))
    v, unseen, spare = _solution(W, b, part)
    return (*solution, unit.only(chosen)) if v is None else (v, unseen, spare, part)


def _solution(W, b, unit):
    """Weights and bias or None, which are not determined, and how many equations are spare."""
    v, unseen = null_vector(rows_by_outputs(W, b, unit))
    return v, unseen, len(unit.points) + len(unit.normals) * (len(W) - 1) - (np.sum(~unseen) - 1)


def _agreeing(W, b, unit, first, known):
    """Critical points with normals that agree with the `first` one, and their `_solution`; none if it has none."""
    chosen, solution = [], None
    for i in [first, *known[known != first]]:
        v, unseen, spare = _solution(W, b, unit.only([*chosen, i]))
        if v is not None and spare >= SPARE_EQUATIONS:
            chosen, solution = [*chosen, i], (v, unseen, spare)
        elif not chosen:
            break
    return chosen, solution


def _contradicts(W, b, unit, v, unseen):
    """Whether v is not zero at critical points (n,) where its unknown weights do not matter."""
    rows = np.column_stack([np.maximum(unit.points @ W + b, 0.0), np.ones(len(unit.points))])
    certain = ~np.any(rows[:, unseen] > 0.0, axis=1)
    return certain & (np.abs(rows @ v) > _ZERO * np.linalg.norm(rows, axis=1))


class SecondLayerUnit:
    """Critical points (n, D) of a unit of the second layer, normals there (nan where unknown), and its jump.

    `along` (n, D) are the directions of lines over the size of the jump on them.
    """

    def __init__(self, points, normals, along, direction):
        self.points, self.along, self.direction = points, along, direction
        self.known = ~np.isnan(normals[:, 0])
        self.normals = normals[self.known] / np.linalg.norm(normals[self.known], axis=1, keepdims=True)

    def only(self, index):
        """The unit with some of its critical points."""
        normals = np.full(self.points.shape, np.nan)
        normals[self.known] = self.normals
        return SecondLayerUnit(self.points[index], normals[index], self.along[index], self.direction)

    def size(self, W, b, weights):
        """Size of the jump of the outputs per unit of the pre-activation with weights (m_1,): the median is robust."""
        gradients = (self.points @ W + b > 0.0) * weights @ W.T
        return 1.0 / np.median(np.abs(np.sum(gradients * self.along, axis=1)))


def rows_by_sizes(normals, offsets, unit):
    """Equations of (a, p, q) in ``a . |z| + p . x + q``: its zeros, and that normals have its gradient's direction.

    Sizes |z| of units with the same sign at all points are parts of ``p . x + q``: their columns are 0.
    """
    D = normals.shape[1]
    Z = unit.points @ normals.T + offsets
    varied = np.any(Z > 0.0, axis=0) & np.any(Z < 0.0, axis=0)
    zeros = np.hstack([np.abs(Z) * varied, unit.points, np.ones((len(Z), 1))])
    gradients = np.concatenate(
        [
            (np.sign(Z[unit.known]) * varied)[:, None, :] * normals.T,
            np.broadcast_to(np.eye(D), (unit.known.sum(), D, D)),
            np.zeros((unit.known.sum(), D, 1)),
        ],
        axis=2,
    )
    return _stacked(zeros, gradients, unit)


def rows_by_outputs(W, b, unit):
    """Equations of (a, q) in ``a . relu(z) + q``."""
    Z = unit.points @ W + b
    zeros = np.hstack([np.maximum(Z, 0.0), np.ones((len(Z), 1))])
    gradients = np.concatenate([(Z[unit.known] > 0.0)[:, None, :] * W, np.zeros((unit.known.sum(), len(W), 1))], axis=2)
    return _stacked(zeros, gradients, unit)


def _stacked(zeros, gradients, unit):
    """Rows of both kinds, those of gradients (g, D, q) without their part along the normals."""
    along = np.einsum("gd,gdq->gq", unit.normals, gradients)
    gradients = gradients - unit.normals[:, :, None] * along[:, None, :]
    sizes = 1.0 + np.linalg.norm(unit.points, axis=1)
    return np.concatenate([zeros / sizes[:, None], gradients.reshape(-1, zeros.shape[1])])


def null_vector(rows):
    """The vector in the null space of the rows, or None if it is not unique; and which entries no row contains (q,)."""
    sizes = np.linalg.norm(rows, axis=0)
    unseen = sizes < TINY
    seen, rows = ~unseen, rows[:, ~unseen]
    if len(rows) < rows.shape[1] or rows.shape[1] < 2:
        return None, unseen
    triangle = lapack.qr(rows / sizes[seen], mode="r")
    values, V = svd(triangle)[1:]
    if values[-1] > _NULL * values[0] or values[-2] < max(_GAP * values[-1], _LEAST_NEXT * values[0]):
        return None, unseen
    v = np.zeros(len(sizes))
    v[seen] = V[-1] / sizes[seen]
    return v / np.linalg.norm(v), unseen
