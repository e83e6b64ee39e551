"""Symmetric powers of vectors in a subspace of symmetric tensors of any order: the subspace power method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import DAMPED_STEPS, NEWTON_STEPS, STRONG_DAMPING

from . import lapack
from .packing import insertion, packing_weights
from .symmetric_tensors import symmetric_power

__all__ = ["SymmetricPowers", "find_symmetric_powers", "power_jacobian"]

_DEFLATED_STEPS = 30  # power steps in the deflated subspace (budget)
_POWER_STEPS = 60  # power steps in the whole subspace (budget)
_SHIFT = 0.05  # of the power step, which makes it an ascent for odd orders too
_DAMPING = 1e-9  # of the trace afterwards: keeps the matrix positive definite
_SAME_COSINE = 1.0 - 1e-5  # of two vectors that are copies of one: an angle of 0.3 degrees
_MAX_RESIDUAL = 3e-3  # beyond which a vector is never accepted
_EXACT_RESIDUAL = 1e-6  # up to which a vector is always accepted
_RESIDUAL_RANGE = 1e4  # factor of the smallest residual up to which a vector is accepted between these
_PATIENCE = 4  # rounds in a row without a new vector, after which the search ends


@dataclass(frozen=True)
class SymmetricPowers:
    """Result of `find_symmetric_powers`.

    Attributes
    ----------
    vectors : ndarray of shape (m, D)
        Unit vectors, by ascending residual.
    residuals : ndarray of shape (m,)
        Distances of their powers from the subspace.
    """

    vectors: np.ndarray
    residuals: np.ndarray


def power_jacobian(X, order):
    """Derivatives of the packed symmetric powers ``x^{(x) k}`` by x.

    Parameters
    ----------
    X : ndarray of shape (n, D)
    order : int
        k >= 1.

    Returns
    -------
    ndarray of shape (n, C(D + k - 1, k), D)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg.symmetric_rank_one import power_jacobian
    >>> print(power_jacobian(np.array([[1.0, 2.0]]), 2)[0].round(3))
    [[2.    0.   ]
     [2.828 1.414]
     [0.    4.   ]]
    """
    n, D = X.shape
    place, weights = _raising(D, order)
    jacobian = np.zeros((n, len(packing_weights(D, order)), D))
    lower = order * symmetric_power(X, order - 1)
    for i in range(D):
        jacobian[:, place[:, i], i] = lower * weights[:, i]
    return jacobian


def find_symmetric_powers(basis, n_features, order, rng, *, max_rounds=12, n_starts=60, farthest=None):
    """All vectors whose symmetric powers lie in a subspace, as many as it has dimensions.

    Parameters
    ----------
    basis : ndarray of shape (C(D + k - 1, k), m)
        Orthonormal basis of the subspace of packed tensors that m powers span.
    n_features, order : int
        D and k >= 2.
    rng : numpy.random.RandomState
    max_rounds : int, default=12
    n_starts : int, default=60
        In every round, at least.
    farthest : float, default=None
        Distance from the subspace up to which a power is accepted. None: 1e4 times that of the nearest one, from 1e-6
        to 3e-3; set it if the vectors are known to very different accuracy.

    Returns
    -------
    SymmetricPowers
        With fewer than m vectors if there are no more.

    Notes
    -----
    Ascent of ``||P x^{(x) k}||`` by the shifted power step ``x <- P(x^{(x) k}) . x^{(x) k - 1} + c x`` from random
    starts, first in the subspace less the projections of known powers, then Gauss-Newton on ``(1 - P) x^{(x) k}``. If
    m is below about ``C(D + k - 1, k) - D``, generic powers are the only ones in their span. ``O(n d^2 D)`` per step
    with n starts and d packed entries.

    Source: J. Kileel, J. M. Pereira (2019). Subspace power method for symmetric tensor decomposition.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import find_symmetric_powers, symmetric_power
    >>> rng = np.random.RandomState(0)
    >>> X = rng.standard_normal((30, 6)); X /= np.linalg.norm(X, axis=1, keepdims=True)
    >>> basis, _ = np.linalg.qr(symmetric_power(X, 3).T)
    >>> found = find_symmetric_powers(basis, 6, 3, rng)
    >>> print(len(found.vectors), np.abs(found.vectors @ X.T).max(axis=0).round(9).min())
    30 1.0
    """
    m = basis.shape[1]
    found, idle = np.zeros((0, n_features)), 0
    for _ in range(max_rounds):
        before = len(found)
        X = _unit(rng.standard_normal((max(n_starts, 6 * (m - len(found))), n_features)))
        if len(found):
            X = _climb(X, _deflated(basis, found, order), order, _DEFLATED_STEPS)
        X = _gauss_newton(_climb(X, basis, order, _POWER_STEPS), basis, order)
        found = _distinct(np.concatenate([found, X]), basis, order, farthest)
        idle = idle + 1 if len(found) <= before else 0
        if len(found) >= m or idle == _PATIENCE:
            break
    return SymmetricPowers(found[:m], _residuals(found[:m], basis, order))


def _raising(D, order):
    """Position (n, D) of multi-indices of order k - 1 with index i inserted, and the weights of contractions there."""
    place = insertion(D, order - 1)
    return place, packing_weights(D, order - 1)[:, None] / packing_weights(D, order)[place]


def _unit(X):
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(float).tiny)


def _climb(X, basis, order, n_steps):
    """Shifted power steps."""
    place, weights = _raising(X.shape[1], order)
    for _ in range(n_steps):
        check_deadline(4.0 * len(X) * basis.size)
        lower = symmetric_power(X, order - 1)
        projected = (symmetric_power(X, order) @ basis) @ basis.T
        step = np.stack([np.sum(projected[:, p] * (lower * w), axis=1) for p, w in zip(place.T, weights.T)], axis=1)
        X = _unit(step + _SHIFT * X)
    return X


def _gauss_newton(X, basis, order):
    """Minimize the distance of the powers from the subspace on the sphere."""
    identity, (n, d), (n_entries, rank) = np.eye(X.shape[1]), X.shape, basis.shape
    for step in range(NEWTON_STEPS):
        check_deadline(2.0 * n * n_entries * d * (2 * rank + d))
        F, J = symmetric_power(X, order), power_jacobian(X, order)
        r = F - (F @ basis) @ basis.T
        J = J - basis @ (basis.T @ J)
        A = np.swapaxes(J, 1, 2) @ J + X[:, :, None] * X[:, None, :]
        share = STRONG_DAMPING if step < DAMPED_STEPS else _DAMPING
        damping = share * np.trace(A, axis1=1, axis2=2)[:, None, None] * identity
        X = _unit(X - lapack.solve(A + damping, np.einsum("ndk,nd->nk", J, r)[:, :, None])[:, :, 0])
    return X


def _residuals(X, basis, order):
    F = symmetric_power(X, order)
    return np.linalg.norm(F - (F @ basis) @ basis.T, axis=1)


def _distinct(pool, basis, order, farthest):
    """Vectors of a pool whose powers are about as close to the subspace as the best one's, each once, best first."""
    residuals = _residuals(pool, basis, order)
    limit = np.clip(_RESIDUAL_RANGE * residuals.min(), _EXACT_RESIDUAL, _MAX_RESIDUAL) if farthest is None else farthest
    chosen = []
    for i in np.argsort(residuals):
        if residuals[i] > limit:
            break
        if not chosen or np.abs(pool[chosen] @ pool[i]).max() < _SAME_COSINE:
            chosen.append(i)
    return pool[chosen]


def _deflated(basis, found, order):
    """Basis of the subspace less the projections of the powers recovered."""
    full, _ = lapack.qr((symmetric_power(found, order) @ basis).T, mode="complete")
    return basis @ full[:, len(found) :]
