"""Facets of a decision boundary: normals from bisected points, and the facet beyond a known hyperplane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import bisect, bracket, orthonormal_complement, sizes

__all__ = ["Facet", "facet_across", "find_facet", "flat_at"]

_COARSE_RADII = (1e-3, 1e-4, 1e-5)  # of the points that give the coarse normal
_RADII = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)  # of the points that give the normal, largest first
_MAX_RATIO = 300.0  # of both radii: the coarse normal is accurate to 2e-3 of its radius
_COARSE_ERROR = 2e-3  # of bisections for the coarse normal, over the radius
_SLACK = 0.02  # of predicted points, over the radius, for the coarse normal
_N_FIRST = 6  # tangents that must agree before the bisection (statistics)
_N_LAST = 4  # tangents that must agree after the bisection (statistics)
_CHECK_TOL = 20.0  # bisection errors by which a predicted point may miss the boundary (rounding)
_ROUNDING = 1e-15  # of a bisected point, relative to 1 + |x|


@dataclass(frozen=True)
class Facet:
    """A flat piece of the boundary: a point, the plane (D + 1,) with unit normal, labels above and below it."""

    point: np.ndarray
    plane: np.ndarray
    pair: tuple[int, int]
    crossings: int = 0  # known hyperplanes crossed since the normal was measured
    support: np.ndarray | None = None  # bisected points (k, D) of the facet

    @property
    def normal(self):
        """Unit normal (D,)."""
        return self.plane[:-1]


def _tangents(n, k, r, rng):
    """Random vectors (k, D) of length r orthogonal to n."""
    V = rng.standard_normal((k, len(n)))
    V -= np.outer(V @ n, n)
    return r * V / np.linalg.norm(V, axis=1)[:, None]


def flat_at(labels, X, facet, error):
    """Whether the boundary passes predicted points X (n, D) of a facet within `error` (1 + |x|): a boolean per row."""
    return bracket(labels, X, facet.normal, error * sizes(X), facet.pair)


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


def _fine_facet(labels, x, n, r, pair, rng):
    """Facet at x from points at radius r around it, given a coarse normal; None if the boundary bends within r."""
    if not np.all(bracket(labels, x + _tangents(n, _N_FIRST, r, rng), n, _SLACK * r, pair)):
        return None
    E = orthonormal_complement(n, rng)
    X = np.vstack([x + r * E, x])
    size = _SLACK * r
    if not np.all(bracket(labels, X, n, size, pair)):
        return None
    tol = max(_ROUNDING * (1.0 + np.linalg.norm(x)), 1e-300)
    t = bisect(labels, X, n, -size, size, pair[1], tol)[0]
    q = x + t[-1] * n
    fine = n - ((t[:-1] - t[-1]) / r) @ E
    fine /= np.linalg.norm(fine)
    V = _tangents(fine, _N_LAST, r, rng)
    if not np.all(bracket(labels, q + V, fine, _CHECK_TOL * tol * np.sqrt(len(q)), pair)):
        return None
    return Facet(q, np.append(fine, -fine @ q), pair, 0, X + t[:, None] * n)


def find_facet(labels, x, u, pair, rng, largest=np.inf):
    """Facet at the boundary point x, with pair[0] towards u (D,); None if the boundary is not flat around x."""
    u = u / np.linalg.norm(u)
    for r0 in (r for r in _COARSE_RADII if r <= largest):
        n = _coarse_normal(labels, x, u, r0, pair, rng)
        if n is None:
            continue
        for r in (r for r in _RADII if r <= min(_MAX_RATIO * r0, largest)):
            facet = _fine_facet(labels, x, n, r, pair, rng)
            if facet is not None:
                return facet
    return None


def facet_across(labels, facet, ridge, d, step, hyperplane):
    """Facet beyond a known hyperplane (D + 1,) that the facet meets at `ridge` in direction d; None if none is there.

    Both planes and the hyperplane are linearly dependent, so one boundary point determines the new plane.
    """
    x = ridge + step * d
    for size in (step, 4.0 * step):
        if bracket(labels, x[None], facet.normal, size, facet.pair)[0]:
            break
    else:
        return None
    t = bisect(labels, x[None], facet.normal, -size, size, facet.pair[1])[0][0]
    x = x + t * facet.normal
    value = hyperplane @ np.append(x, 1.0)
    if value * (hyperplane @ np.append(ridge + step * d, 1.0)) <= 0:
        return None
    plane = facet.plane - (facet.plane @ np.append(x, 1.0) / value) * hyperplane
    plane /= np.linalg.norm(plane[:-1])
    return Facet(x, plane, facet.pair, facet.crossings + 1, x[None])
