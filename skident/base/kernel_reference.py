"""Kernel ridge regression: the leave-one-out errors of a smooth function, as a reference for other fits."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skident.linalg import column_units

__all__ = ["kernel_squared_errors"]

_WIDTHS = (0.3, 1.0)  # factors of the squared distance over its mean: kernels of two widths
_RIDGES = np.logspace(-4, 1.5, 12)  # relative to the diagonal of the kernel, which is 1
_MIN_GAP = 1e-12  # of 1 - leverage: a sample that the fit interpolates has no leave-one-out error


def kernel_squared_errors(X, y, *, standardize=True, widths=_WIDTHS, ridges=_RIDGES):
    """Squared leave-one-out errors (n,) of kernel ridge regression of y (n,) or (n, k), summed over targets.

    A Gaussian kernel of the width and ridge of the least mean error, on the columns of X (n, D), standardized unless
    `standardize` is False. One eigendecomposition of order n per width: for n up to about 500.
    """
    if standardize:
        mean, scale = column_units(X)
        X = (X - mean) / scale
    distances = euclidean_distances(X, squared=True)
    distances /= max(distances.mean(), np.finfo(float).tiny)
    Y = y.reshape(len(y), -1)
    choices = [errors for width in widths for errors in _squares(np.exp(-distances * width), Y, ridges)]
    return min(choices, key=np.mean)


def _squares(kernel, Y, ridges):
    """Squared leave-one-out errors with every ridge, (ridges, n), of targets Y (n, k); constants are not penalized."""
    n, Y = len(Y), Y - Y.mean(axis=0)
    centered = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    values, U = np.linalg.eigh(centered)
    left = ridges[:, None] / (np.maximum(values, 0.0) + ridges[:, None])
    residuals = np.stack([U @ (part[:, None] * (U.T @ Y)) for part in left])
    own = np.maximum(left @ (U * U).T - 1.0 / n, _MIN_GAP)
    return np.sum((residuals / own[..., None]) ** 2, axis=2)
