"""The span of the first layer's weights: normals of the boundary lie in it, and labels depend on nothing else."""

import numpy as np

from skident.budget.constants import ROOT_RANK_TOL
from skident.linalg import lapack, svd

from .aiming import moves
from .checks import predicted_points
from .coordinates import Projected
from .facets import RADII, fine_facet
from .points import sizes

_N_TESTED = 100  # boundary points at which labels must not move orthogonally to the span (statistics)
_N_TESTED_FIRST = 24  # of them per round while some do (budget)
_MAX_MEASURED = 8  # of those that do (budget)
_POOL = 1000  # predicted boundary points, at some of which normals are measured again (no queries)
_PREDICTED = 1e-4  # of predicted points, over the radius
_MAX_SPANS = 40  # rounds of that test (budget)


def within_span(search, least=1):
    """Labels in coordinates of the span of all normals, or `least` ones around it; the search keeps measured facets.

    Along directions orthogonal to the span no label may change. If one does, a facet is measured there.
    """
    labels, n = search.labels, _N_TESTED_FIRST
    for _ in range(_MAX_SPANS):
        Q = _span(search)
        if len(Q) == labels.n_features:
            break
        points = search.cross(n)
        moved = _moved(search, points)
        if not len(moved) and n == _N_TESTED:
            break
        n = n if len(moved) else _N_TESTED
        for i in moved[:_MAX_MEASURED]:
            x, pair, u = (column[i : i + 1] for column in points)
            if len(_moved(search, (x, pair, u))):  # else a facet measured since is enough
                search.facet(x[0], pair[0], u[0])
    return Projected(labels, _span(search, least))


def corrected(labels, logits, rng):
    """Basis and logits as they are, but the basis from facets with independent normals, that the logits predict."""
    root, Q = labels.root, labels.basis
    outer = labels.composed(logits)
    X, pairs = predicted_points(root, outer, _POOL, rng)
    G = outer.gradients(X, pairs)
    G /= np.linalg.norm(G, axis=1)[:, None]
    left, found = G @ Q.T, []
    for _ in range(len(Q)):
        size = np.linalg.norm(left, axis=1)
        if size.max(initial=0.0) < ROOT_RANK_TOL:
            break
        i = np.argmax(size)
        u = left[i] / size[i]
        left = left - np.outer(left @ u, u)
        pair = tuple(map(int, pairs[i]))
        facets = (fine_facet(root, X[i], G[i], r, pair, rng, _PREDICTED) for r in RADII)
        if (facet := next((f for f in facets if f is not None), None)) is not None:
            found.append((facet, G[i] @ Q.T))
    if not found:
        return Q
    weight = np.array([np.linalg.norm(f.support[0] - f.point) for f, _ in found])[:, None]
    A, N = np.array([g for _, g in found]), np.array([f.normal for f, _ in found])
    N /= np.sum(N @ Q.T * A, axis=1)[:, None] / np.sum(A * A, axis=1)[:, None]
    return Q + lapack.lstsq(weight * A, weight * (N - A @ Q), rcond=None)[0]


def _moved(search, points):
    """Indices of boundary points (X, pairs, U) whose labels change along a direction orthogonal to all normals."""
    Q, (X, _, U) = _span(search), points
    V = search.rng.standard_normal(X.shape)
    return np.flatnonzero(moves(search.labels, X, U, V - V @ Q.T @ Q) > 0)


def _span(search, least=1):
    """Orthonormal rows (r, D); errors of normals are inverse to the radius of a facet's points."""
    if not search.facets:
        return np.zeros((0, search.labels.n_features))
    normals = np.array([f.normal * np.linalg.norm(f.support[0] - f.point) for f in search.facets])
    normals /= sizes(np.array([f.point for f in search.facets]))[:, None]
    _, s, V = svd(normals, full_matrices=False)
    Q = V[s > ROOT_RANK_TOL * s[0]]
    more = search.rng.standard_normal((max(least - len(Q), 0), Q.shape[1]))
    return lapack.qr(np.vstack([Q, more]).T)[0].T
