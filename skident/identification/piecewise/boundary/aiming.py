"""Bends of units that random paths do not meet: between boundary points where such a unit is active and where not."""

import numpy as np

from skident.linalg import lapack

from ...constants import LABEL_OFFSET
from .facets import find_facet
from .points import bisect, sizes
from .units import Pencil

_MOVE = 1e-4  # along a direction, in standard deviations, by which a label may change
_TRIES = 6  # pairs of points per aim (budget)
_APART = 1e-5  # of the way between both points, to which the bend is bisected
_ERROR = 1e-9  # of points between, in standard deviations: an offset of labels is ten times as large
_MAX_CORRECTION = 1e-2  # of a bend, in standard deviations: several times the move
_BACK = (1e-3, 3e-4, 1e-4)  # of the way, from the bend, at which facets are measured
_INACTIVE = 1e-7  # coefficient of a direction in a unit normal that is an error
_GRID = np.array([-2, -1, -0.5, -0.25, -0.1, -0.03, 0, 0.03, 0.1, 0.25, 0.5, 1, 2])  # places, over the points' distance


def moves(labels, X, U, V):
    """Whether the labels beside boundary points X (n, D) change along V: 1, 0, or -1 if the point is none along U."""
    U = U / np.linalg.norm(U, axis=1)[:, None]
    V = _MOVE * V / np.linalg.norm(V, axis=1)[:, None]
    h = (LABEL_OFFSET * sizes(X))[:, None] * U
    seen = labels(np.vstack([X + h, X - h, X + V + h, X + V - h, X - V + h, X - V - h])).reshape(6, -1)
    same = np.all(seen[2::2] == seen[0], axis=0) & np.all(seen[3::2] == seen[1], axis=0)
    return np.where((seen[0] == seen[1]) | np.any(seen < 0, axis=0), -1, np.where(same, 0, 1))


def aimed_pencils(labels, missing, crossings, facets, rng):
    """Pencils with their facets at bends where a unit with a part in `missing` (k, r) becomes active."""
    v = _direction(missing, facets, rng)
    X, U = (np.array(column) for column in list(zip(*crossings, strict=True))[::2])
    moved = moves(labels, X, U, np.tile(v, (len(X), 1)))
    on = [(x, u) for x, u, a in zip(X, U, moved, strict=True) if a == 1]
    off = [(x, u) for x, u, a in zip(X, U, moved, strict=True) if a == 0]
    for facet in facets:
        (off if abs(facet.normal @ v) < _INACTIVE else on).append((facet.point, facet.normal))
    for _ in range(_TRIES if on and off else 0):
        ends = on[rng.randint(len(on))], off[rng.randint(len(off))]
        found = _between(labels, *ends, v, rng)
        if found is not None:
            yield found


def _direction(missing, facets, rng):
    """A unit vector in the span of `missing` (k, r), orthogonal to random facets' normals: few units act along it."""
    parts, basis = [missing @ facets[i].normal for i in rng.permutation(len(facets))], np.zeros((0, len(missing)))
    for w in parts:
        left = w - basis.T @ (basis @ w)
        if len(basis) < len(missing) - 1 and np.linalg.norm(left) > _INACTIVE:
            basis = np.vstack([basis, _unit(left)])
    c = rng.standard_normal(len(missing))
    return _unit((c - basis.T @ (basis @ c)) @ missing)


def _between(labels, on, off, v, rng):
    """Pencil and facets on both sides of the bend where labels stop to move along v; None if there is none."""
    low, high, at = 0.0, 1.0, None
    while high - low > _APART:
        middle = (low + high) / 2
        point = _point_between(labels, on, off, middle)
        moved = -1 if point is None else moves(labels, point[0][None], point[1][None], v[None])[0]
        if moved < 0:
            return None
        low, high, at = (middle, high, point) if moved else (low, middle, point)
    if at is None:
        return None
    facets = []
    for s, side in ((low, -1), (high, 1)):
        for back in _BACK:
            point = _point_between(labels, on, off, s + side * back) if 0 < s + side * back < 1 else None
            facet = None if point is None else find_facet(labels, *point, rng)
            if facet is not None:
                facets.append(facet)
                break
    if len(facets) < 2:
        return None
    planes = np.array([f.plane for f in facets])  # labels move up to _MOVE beyond the bend: it lies on both planes
    correction = lapack.lstsq(planes[:, :-1], planes @ np.append(at[0], 1.0), rcond=None)[0]
    return (Pencil(planes, at[0] - correction), facets) if np.linalg.norm(correction) < _MAX_CORRECTION else None


def _point_between(labels, on, off, s):
    """Boundary point, direction and pair on the segment whose center and direction lie between those of two points."""
    x, u = (1 - s) * on[0] + s * off[0], (1 - s) * _unit(on[1]) + s * _unit(off[1])
    if np.linalg.norm(u) < 0.1:
        return None
    u = _unit(u)
    t = np.linalg.norm(on[0] - off[0]) * _GRID
    seen = labels(x + t[:, None] * u)
    k = np.flatnonzero((seen[1:] != seen[:-1]) & (seen[1:] >= 0) & (seen[:-1] >= 0))
    if not len(k):
        return None
    k = k[np.argmin(np.abs(t[k] + t[k + 1]))]
    at, below, above = bisect(labels, x[None], u, t[k], t[k + 1], seen[k : k + 1], _ERROR)
    return x + at[0] * u, u, (int(above[0]), int(below[0]))


def _unit(v):
    return v / np.linalg.norm(v)


def aim_along(beyond, facet, other):
    """Target of a path on `beyond` along its ridge with `facet`, to where the bend to `other` continues."""
    q, C = beyond.point, other.plane
    basis = lapack.qr(np.column_stack([beyond.normal, facet.normal]))[0]
    d = C[:-1] - basis @ (basis.T @ C[:-1])
    slope = C[:-1] @ d
    t = -(C @ np.append(q, 1.0)) / slope if slope > 0 else 1.0
    return q + 2.0 * t * d
