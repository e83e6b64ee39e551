"""Kernel ridge regression for all ridges of a path, with the residuals of each sample left out."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import MIN_GAP

__all__ = ["ridge_path"]


def ridge_path(kernel, Y, ridges, *, intercept=False):
    """Leave-one-out residuals (r, n, k) and dual coefficients (r, n, k) of targets Y (n, k), by ridge (r,).

    Predictions are ``kernel(x, X) @ dual``. With `intercept` the constant is not penalized: kernel (n, n) and Y are
    centered, and so must be the kernel of predictions. One eigendecomposition of order n, ``O(n^3 + r n^2 k)``.
    """
    n = len(Y)
    if intercept:
        kernel = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
        Y = Y - Y.mean(axis=0)
    values, U = np.linalg.eigh(kernel)
    values = np.where(values > np.finfo(float).eps * n * values[-1], values, 0.0)
    left, rotated = ridges[:, None] / (values + ridges[:, None]), U.T @ Y
    own = np.maximum(left @ (U * U).T - intercept / n, MIN_GAP)
    residuals = (U @ (left[:, :, None] * rotated)) / own[:, :, None]
    return residuals, U @ ((values > 0.0)[:, None] * rotated * (left / ridges[:, None])[:, :, None])
