"""Two units at once: where their hyperplanes meet on the boundary, or as the only ones of a network.

Of the four planes around a corner the fourth is a combination of the others, with scales that few boundary points give.
A network with two units has no facet where both are inactive. Where both are active, its gradient is the sum of those
where one is: three normals are linearly dependent.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from skident.linalg import lapack

from ...constants import APART, MIN_BEND, ON_UNIT
from .logits import Logits
from .surfaces import crossing

__all__ = ["units_at_corner", "units_of_three", "without_linear_part"]

_DEPENDENT = 3e-8  # distance of a normal from the span of two others that are accurate to 1e-9 or better
_N_POINTS = 5  # beyond a corner, which determine two scales (statistics)
_NEAR_BEND = 0.02  # distance of these points beyond the bend
_ASIDE = 0.3  # of that distance, aside
_FITS = 1e-8  # residual of these scales, relative to the largest value
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


def units_at_corner(labels, base, one, two, x, d, rng):
    """Hyperplanes (2, D + 1) of the units between facets `base` and `one`, `base` and `two`, or None; and points.

    Facet `one` bends at x in direction d, where the second unit's hyperplane may continue. Beyond it both units add
    their jumps to the plane of `base`: ``scale_1 * one + scale_2 * two - base`` is zero at boundary points there.
    """
    if len(x) < 3:
        return None, []  # planes through points in the plane fit anyway
    Y = _just_beyond(labels, one.plane, base.pair, x, d, rng)
    if not len(Y):
        return None, []
    Z = np.column_stack([Y, np.ones(len(Y))]) @ np.column_stack([one.plane, two.plane, base.plane])
    scales, _, _, s = lapack.lstsq(Z[:, :2], Z[:, 2], rcond=None)
    off = np.abs(Z[:, :2] @ scales - Z[:, 2]).max()
    if s[-1] < APART * s[0] or np.min(scales) < _MIN_PART or off > _FITS * np.abs(Z[:, 2]).max():
        return None, Y
    H = scales[:, None] * np.array([one.plane, two.plane]) - base.plane
    H /= np.linalg.norm(H[:, :-1], axis=1)[:, None]
    on = abs(H[1] @ np.append(x, 1.0)) < ON_UNIT * (1 + np.linalg.norm(x))
    return (H if on else None), Y


def _just_beyond(labels, plane, pair, x, d, rng):
    """Boundary points (n, D), few or none, beyond the bend at x, off the facet before it."""
    n, Y = plane[:-1] / np.linalg.norm(plane[:-1]), []
    for _ in range(_N_POINTS):
        t = rng.standard_normal(len(x))
        t -= (t @ n) * n
        q = x + _NEAR_BEND * (d + _ASIDE * t / np.linalg.norm(t))
        y = crossing(labels, q, n, 0.25 * _NEAR_BEND, pair)
        if y is None or abs(plane @ np.append(y, 1.0)) < MIN_BEND * _NEAR_BEND * np.linalg.norm(plane[:-1]):
            return []
        Y.append(y)
    return Y


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
