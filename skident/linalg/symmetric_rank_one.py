"""Symmetric powers of vectors in a subspace of symmetric tensors of any order."""

import itertools
from dataclasses import dataclass

import numpy as np

from .packing import packing_weights
from .products import vectors_of_products

_FARTHEST = 3e-3  # distance from the subspace beyond which a power is not one of it, unless another one is given


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
        Distance from the subspace up to which a power is accepted, 3e-3 if None; the nearest ones come first.

    Returns
    -------
    SymmetricPowers
        With fewer than m vectors if there are no more.

    Notes
    -----
    Gauss-Newton on ``(1 - P) x^{(x) k}`` from random starts, first in the subspace less the projections of known
    powers. If m is below about ``C(D + k - 1, k) - D``, generic powers are the only ones in their span. ``O(n d^2 D)``
    per step with n starts and d packed entries.

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
    sets = np.array(list(itertools.combinations_with_replacement(range(n_features), order)))
    options = {"weights": packing_weights(n_features, order), "n_rounds": max_rounds, "n_starts": n_starts}
    farthest = _FARTHEST if farthest is None else farthest
    return SymmetricPowers(*vectors_of_products(basis, n_features, sets, rng, farthest, **options))
