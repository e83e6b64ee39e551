"""Kernel ridge regression for all ridges of a path, with the residuals of each sample left out."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import MIN_GAP

__all__ = ["ridge_path"]


def ridge_path(kernel, Y, ridges, *, intercept=False, roots=None):
    """Leave-one-out residuals (r, n, k) and dual coefficients (r, n, k) of targets Y (n, k), by ridge (r,).

    Predictions are ``kernel(x, X) @ dual``. With `intercept` the constant is not penalized: kernel (n, n) and Y are
    centered, and so must be the kernel of predictions. Samples, and with them the residuals, are multiplied by `roots`
    (n,), the square roots of their weights. One eigendecomposition of order n, ``O(n^3 + r n^2 k)``.
    """
    n = len(Y)
    roots = np.ones(n) if roots is None else roots
    kernel, Y, constant = roots[:, None] * kernel * roots, roots[:, None] * Y, np.zeros(n)
    if intercept:
        constant = roots / np.linalg.norm(roots)
        kernel -= np.outer(constant, constant @ kernel)
        kernel -= np.outer(kernel @ constant, constant)
        Y = Y - np.outer(constant, constant @ Y)
    values, U = np.linalg.eigh(kernel)
    values = np.where(values > np.finfo(float).eps * n * values[-1], values, 0.0)
    left, rotated = ridges[:, None] / (values + ridges[:, None]), U.T @ Y
    own = np.maximum(left @ (U * U).T - constant**2, MIN_GAP)
    residuals = (U @ (left[:, :, None] * rotated)) / own[:, :, None]
    dual = U @ ((values > 0.0)[:, None] * rotated * (left / ridges[:, None])[:, :, None])
    return residuals, roots[:, None] * dual
