"""Products of entries of a vector, such as all those of different entries; vectors whose products lie in a subspace."""

import numpy as np

from skident.budget import check_deadline

from . import lapack

_ROUNDS = 14  # of starts (budget)
_STRICT = 0.05  # of the farthest distance, in the first round: the nearest ones come first
_STARTS = 40  # per round, at least
_STEPS = 60  # of Gauss-Newton per start (budget)
_DEFLATED_STEPS = 15  # of these, in the subspace less the projections of known products
_SAME_COSINE = 0.997  # of products of two vectors that are copies of one, up to factors of their entries
_MAX_ENTRY_STEP = 0.5  # of a unit vector
_FIRST_DAMPING = 1e-2  # relative to the mean of the diagonal


def products_of_entries(V, sets):
    """Products (n, d) of entries of the rows of V (n, k), of columns `sets` (d, p); a column may be repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg.products import products_of_entries
    >>> print(products_of_entries(np.array([[1.0, 2.0, 3.0]]), np.array([[0, 1], [1, 2], [2, 2]])))
    [[2. 6. 9.]]
    """
    return np.prod(V[:, sets], axis=2)


def vectors_of_products(basis, n_features, sets, rng, farthest, *, weights=1.0, n_rounds=_ROUNDS, n_starts=_STARTS):
    """All unit vectors (<= m, k) whose products of entries `sets` (d, p) lie in a subspace, and their distances.

    `basis` (d, m) is orthonormal, for products times `weights` (d,); distances are relative, those above `farthest` are
    no vectors. Gauss-Newton from random starts, first in the subspace less the projections of known products, so that
    each is recovered once.
    """
    m, found, deflated = basis.shape[1], np.zeros((0, n_features)), basis
    known = np.zeros((0, len(sets)))
    for limit in farthest * np.geomspace(_STRICT, 1.0, n_rounds):
        V = rng.standard_normal((max(n_starts, 3 * (m - len(found))), n_features))
        V, distances = _descend(V, deflated, basis, (sets, weights))
        products = _unit(weights * products_of_entries(V, sets))
        for i in np.argsort(distances):
            if distances[i] > limit or len(found) >= 2 * m:
                break
            if np.abs(known @ products[i]).max(initial=0.0) < _SAME_COSINE:
                found, known = np.vstack([found, V[i]]), np.vstack([known, products[i]])
        if len(found) >= m:
            break
        if len(found):
            deflated = basis @ lapack.qr((known @ basis).T, mode="complete")[0][:, len(found) :]
    distances = np.linalg.norm(known - (known @ basis) @ basis.T, axis=1)
    best = np.argsort(distances)[:m]
    return found[best], distances[best]


def _unit(X):
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(float).tiny)


def _descend(V, deflated, basis, terms):
    """Vectors with products near the subspace, by damped Gauss-Newton, and the relative distances."""
    (n, k), V = V.shape, _unit(V)
    damping, diagonal = np.full(n, _FIRST_DAMPING), np.arange(k)
    for step in range(_STEPS):
        check_deadline(2.0 * n * basis.size * k)
        if step in (0, _DEFLATED_STEPS):
            span = deflated if step == 0 else basis
            damping[:] = _FIRST_DAMPING
            r, J = _outside(V, terms, span)
            cost = np.sum(r**2, axis=1)
        A, slope = J @ np.swapaxes(J, 1, 2), J @ r[:, :, None]
        A[:, diagonal, diagonal] += (damping * np.trace(A, axis1=1, axis2=2) / k)[:, None] + np.finfo(float).tiny
        A += V[:, :, None] * V[:, None, :]
        new = _unit(V - np.clip(lapack.solve(A, slope)[:, :, 0], -_MAX_ENTRY_STEP, _MAX_ENTRY_STEP))
        r_new, J_new = _outside(new, terms, span)
        cost_new = np.sum(r_new**2, axis=1)
        better = cost_new < cost
        V[better], r[better], J[better], cost[better] = new[better], r_new[better], J_new[better], cost_new[better]
        damping = np.clip(np.where(better, 0.25, 4.0) * damping, 1e-12, 1e6)
    return V, np.sqrt(cost)


def _outside(V, terms, span):
    """The part of normalized products (n, d) outside of a span, and its derivatives (n, k, d) by the vectors."""
    sets, weights = terms
    factors = V[:, sets]
    products = weights * np.prod(factors, axis=2)
    J = np.zeros((len(V), V.shape[1], len(sets)))
    for q in range(sets.shape[1]):
        J[:, sets[:, q], np.arange(len(sets))] += weights * np.prod(np.delete(factors, q, axis=2), axis=2)
    norms = np.maximum(np.linalg.norm(products, axis=1), np.finfo(float).tiny)[:, None]
    u = products / norms
    J = (J - (J @ u[:, :, None]) * u[:, None, :]) / norms[:, None]
    return u - (u @ span) @ span.T, J - (J @ span) @ span.T
