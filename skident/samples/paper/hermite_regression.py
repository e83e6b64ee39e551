"""Coefficient tensors of a function by least squares on all Hermite polynomials up to a degree.

The mean of ``y He_k(x)`` is the same number in the limit, but all of y makes its error; here only what the polynomial
leaves of y does. That needs far fewer samples, as long as they outnumber the polynomials.
"""

from __future__ import annotations

import math

import numpy as np

from skident.budget.constants import BATCH_NUMBERS
from skident.linalg import n_symmetric_entries
from skident.linalg.hermite import hermite_features_to

__all__ = ["hermite_gram", "regress_on_hermite", "n_hermite_features", "tensors_from_gram"]

_MOST_FEATURES = 5000  # of which the Gram matrix takes 200 MB
_RANK_TOLERANCE = 1e-12  # eigenvalue of the Gram matrix, relative to the largest, that counts as zero (rounding)


def n_hermite_features(n_features, degree):
    """``C(D + degree, degree)``, the number of Hermite polynomials of D variables up to a degree."""
    return math.comb(n_features + degree, degree)


def hermite_gram(X, y, sample_weight, degree):
    """Weighted Gram matrix of the Hermite features of a block of rows, and their products with y.

    Order k's features are divided by the root of k!, so that the Gram matrix is near ``n I`` for normal rows. Sums over
    blocks are those of all rows.

    X (n, D), y (n,), sample_weight (n,); returns gram (K, K), products (K,).
    """
    F = np.concatenate(
        [f.T / math.sqrt(math.factorial(k)) for k, f in enumerate(hermite_features_to(X, degree))], axis=0
    )
    if sample_weight is None:
        return F @ F.T, F @ y
    F *= np.sqrt(sample_weight)
    return F @ F.T, F @ (np.sqrt(sample_weight) * y)


def tensors_from_gram(gram, products, n_features, degree):
    """The least-squares polynomial's tensors, from the sums of `hermite_gram`.

    gram (K, K), products (K,).
    """
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    kept = values > _RANK_TOLERANCE * values[-1]
    solution = vectors[:, kept] @ ((vectors[:, kept].T @ (products / scale)) / values[kept]) / scale
    ends = np.cumsum([n_symmetric_entries(n_features, k) for k in range(degree + 1)])
    parts = np.split(solution, ends[:-1])
    return {k: part * math.sqrt(math.factorial(k)) for k, part in enumerate(parts)}


def regress_on_hermite(X, y, degree, *, sample_weight=None):
    """Tensors of the polynomial of a degree that fits samples best: ``y ~ sum_k <T_k, He_k(x)> / k!``.

    X (n, D), y (n,), sample_weight (n,).

    With ``K = C(D + degree, degree)`` polynomials: ``O(n K^2 + K^3)`` and memory for ``K^2`` numbers, whatever n is.
    Normal equations: rows are normal, so their matrix is near the identity where n is some times K.
    """
    n, D = X.shape
    K = n_hermite_features(D, degree)
    if K > _MOST_FEATURES:
        raise ValueError(
            f"{K} Hermite polynomials of degree up to {degree} in {D} variables are too many, {_MOST_FEATURES} are "
            "allowed; lower the degree or project X to fewer variables."
        )
    if n < K:
        raise ValueError(f"{n} rows do not determine {K} Hermite polynomials of degrees to {degree}; give {K} or more.")
    gram, products = np.zeros((K, K)), np.zeros(K)
    rows = max(64, BATCH_NUMBERS // K)
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        block = (np.asarray(A[part], dtype=np.float64) for A in (X, y))
        weights = None if sample_weight is None else np.asarray(sample_weight[part], dtype=np.float64)
        more_gram, more_products = hermite_gram(*block, weights, degree)
        gram += more_gram
        products += more_products
    return tensors_from_gram(gram, products, D, degree)
