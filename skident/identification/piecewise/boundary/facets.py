"""Facets of a decision boundary: normals from bisected points."""

from dataclasses import dataclass

import numpy as np

from .points import bisect, bracket, orthonormal_complement

_COARSE_RADII = (1e-3, 1e-5)  # of the points that give the coarse normal
RADII = (0.5, 0.2, 0.08, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)  # of the points that give the normal, largest first
_MAX_RATIO = 1000.0  # of both radii: linear regions that need a small coarse radius are small
_COARSE_ERROR = 2e-3  # of bisections for the coarse normal, over the radius
_SLACK = 0.02  # of predicted points, over the radius, for the coarse normal
_N_FIRST = 6  # tangents that must agree before the bisection (statistics)
_N_LAST = 5  # tangents that must agree after each bisection (statistics)
_CHECK_TOL = 20.0  # bisection errors by which a predicted point may miss the boundary (rounding)
_FIRST_ERROR = 1e-3  # of a first bisection, over its interval, after which tangents must agree, too (budget)
_ROUNDING = 1e-15  # of a bisected point, relative to 1 + |x|


@dataclass(frozen=True)
class Facet:
    """A flat piece of the boundary: a point, the plane (D + 1,) with unit normal, labels above and below it."""

    point: np.ndarray
    plane: np.ndarray
    pair: tuple[int, int]
    support: np.ndarray | None = None  # bisected points (k, D) of the facet

    @property
    def normal(self):
        """Unit normal (D,)."""
        return self.plane[:-1]

    def within(self, Q):
        """The facet in coordinates of orthonormal rows Q (r, D) that span its normal."""
        plane = np.append(Q @ self.normal, self.plane[-1])
        return Facet(Q @ self.point, plane, self.pair, self.support @ Q.T)


def _tangents(n, k, r, rng):
    """Random vectors (k, D) of length r orthogonal to n."""
    V = rng.standard_normal((k, len(n)))
    V -= np.outer(V @ n, n)
    return r * V / np.linalg.norm(V, axis=1)[:, None]


def _coarse_normal(labels, x, u, r, pair, rng):
    """Normal at x to about 1e-2, oriented towards pair[0]; None if the boundary is not a graph over u there."""
    E = orthonormal_complement(u, rng)
    size = 4.0 * r
    while not np.all(bracket(labels, x + r * E, u, size, pair)):
        size *= 4.0
        if size > 100.0 * r:
            return None
    t = bisect(labels, x + r * E, u, -size, size, pair[1], _COARSE_ERROR * r)[0]
    n = u - (t / r) @ E
    return n / np.linalg.norm(n)


def fine_facet(labels, x, n, r, pair, rng, slack=_SLACK, error=0.0):
    """Facet at x from points at radius r around it, given a coarse normal; None if the boundary bends within r."""
    if not np.all(bracket(labels, x + _tangents(n, _N_FIRST, r, rng), n, slack * r, pair)):
        return None
    E = orthonormal_complement(n, rng)
    X = np.vstack([x + r * E, x])
    size = slack * r
    if not np.all(bracket(labels, X, n, size, pair)):
        return None
    last = max(_ROUNDING * (1.0 + np.linalg.norm(x)), error)
    t = np.zeros(len(X))
    for tol in (_FIRST_ERROR * size, last) if last < _FIRST_ERROR * size else (last,):
        t, _, above = bisect(labels, X, n, t - size, t + size, pair[1], tol)
        if np.any(above != pair[0]):  # a third class
            return None
        q = x + t[-1] * n
        fine = n - ((t[:-1] - t[-1]) / r) @ E
        fine /= np.linalg.norm(fine)
        V = _tangents(fine, _N_LAST, r, rng)
        if not np.all(bracket(labels, q + V, fine, _CHECK_TOL * tol * np.sqrt(len(q)), pair)):
            return None
        size = tol
    return Facet(q, np.append(fine, -fine @ q), pair, X + t[:, None] * n)


def find_facet(labels, x, u, pair, rng, largest=np.inf):
    """Facet at the boundary point x, with pair[0] towards u (D,); None if the boundary is not flat around x."""
    u = u / np.linalg.norm(u)
    for r0 in (r for r in _COARSE_RADII if r <= largest):
        if (n := _coarse_normal(labels, x, u, r0, pair, rng)) is None:
            continue
        for r in (r for r in RADII if r <= min(_MAX_RATIO * r0, largest)):
            if (facet := fine_facet(labels, x, n, r, pair, rng)) is not None:
                return facet
    return None


def axes_of(normals):
    """The axes of those unit normals that are axis-parallel."""
    return [int(np.argmax(np.abs(n))) for n in normals if np.sum(np.abs(n) > 1e-9) == 1]
