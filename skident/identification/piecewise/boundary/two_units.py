"""Two units at once: where their hyperplanes meet on the boundary, or as the only ones of a network.

Of the four planes around a corner the fourth is a combination of the others.
A network with two units has no facet where both are inactive. Where both are active, its gradient is the sum of those
where one is: three normals are linearly dependent.
"""

from itertools import product

import numpy as np

from skident.linalg import lapack, svd

from ...constants import APART
from .logits import Logits

_DEPENDENT = 3e-8  # distance of a plane from the span of others that are accurate to 1e-9 or better
_MIN_PART = 1e-4  # of a normal in the combination; smaller ones are no bends


def _jumps(one, middle, two):
    """Affine functions (2, D + 1) that units add from planes `one` and `two` (unit normals) to `middle`, or None."""
    if len(middle) <= 3:
        return None  # three normals in the plane are dependent anyway
    A = np.column_stack([one[:-1], two[:-1]])
    shares, _, _, s = lapack.lstsq(A, middle[:-1], rcond=None)
    if s[-1] < APART or np.min(shares) < _MIN_PART or np.linalg.norm(A @ shares - middle[:-1]) > _DEPENDENT:
        return None
    return middle - shares[:, None] * np.array([one, two])


def units_at_corner(base, one, two, far):
    """Hyperplanes (2, D + 1) of the units between planes `base` and `one`, `base` and `two`, or None.

    Across both, both units add their jumps to `base`: ``scale_1 * one + scale_2 * two - base`` is a multiple of `far`.
    """
    _, s, V = svd(np.array([one, two, -base, -far]).T)
    scales = V[-1] / V[-1, 2]
    if len(base) < 4 or s[-1] > _DEPENDENT or s[-2] < APART or np.min(scales) < _MIN_PART:
        return None  # in the plane, any four are dependent
    H = scales[:2, None] * np.array([one, two]) - base
    return H / np.linalg.norm(H[:, :-1], axis=1)[:, None]


def units_of_three(one, middle, two):
    """Hyperplanes (2, D + 1) of the units between planes `one` and `middle`, `two` and `middle`, or None."""
    jumps = _jumps(one, middle, two)
    return None if jumps is None else jumps / np.linalg.norm(jumps[:, :-1], axis=1)[:, None]


def without_linear_part(logits):
    """The logits of two classes and two units that agree on the boundary and have no linear part, else `logits`.

    Boundary points do not determine the scales of the three planes: a linear part could take up their differences.
    """
    H, column = logits.hyperplanes, logits.coef[:, 1] - logits.coef[:, 0]
    for sides in product((1.0, -1.0), repeat=2):
        signs = np.array([sides, (-sides[0], sides[1]), (sides[0], -sides[1])])
        planes = column[2:] + (signs * column[:2]) @ H
        sizes = np.linalg.norm(planes[:, :-1], axis=1)
        if np.min(sizes) < _MIN_PART * np.max(sizes):
            continue
        middle, two, one = planes / sizes[:, None]
        jumps = _jumps(two, middle, one)  # of the first unit, of the second
        if jumps is not None:
            norms = np.linalg.norm(jumps[:, :-1], axis=1)
            fitted = np.concatenate([np.sign(column[:2]) * norms / 2, middle - jumps.sum(axis=0) / 2])
            return Logits(jumps / norms[:, None], np.column_stack([np.zeros(len(fitted)), fitted]))
    return logits
