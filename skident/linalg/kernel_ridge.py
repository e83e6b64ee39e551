"""Kernel ridge regression for all ridges of a path, with the residuals of samples left out, alone or by folds."""

import numpy as np

from skident.budget.constants import MIN_GAP


def ridge_path(kernel, Y, ridges, *, intercept=False, roots=None):
    """Leave-one-out residuals (r, n, k) and dual coefficients (r, n, k) of targets Y (n, k), by ridge (r,).

    Predictions are ``kernel(x, X) @ dual``. With `intercept` the constant is not penalized: kernel (n, n) and Y are
    centered, and so must be the kernel of predictions. Samples, and with them the residuals, are multiplied by `roots`
    (n,), the square roots of their weights. One eigendecomposition of order n, ``O(n^3 + r n^2 k)``.
    """
    n, roots = len(Y), np.ones(len(Y)) if roots is None else roots
    kernel, Y, constant = _centered(kernel, Y, roots, intercept)
    values, U = np.linalg.eigh(kernel)
    values = np.where(values > np.finfo(float).eps * n * values[-1], values, 0.0)
    left, rotated = ridges[:, None] / (values + ridges[:, None]), U.T @ Y
    own = np.maximum(left @ (U * U).T - constant**2, MIN_GAP)
    residuals = (U @ (left[:, :, None] * rotated)) / own[:, :, None]
    shifted = values + ridges[:, None]
    inverse = np.divide(1.0, shifted, out=np.zeros_like(shifted), where=(values > 0.0) & (shifted > 0.0))
    dual = U @ (inverse[:, :, None] * rotated)
    return residuals, roots[:, None] * dual


def fold_residuals(kernel, Y, ridge, folds, roots):
    """Residuals (n, k) of samples left out by `folds` of indices, multiplied by `roots`; NaN for others.

    As `ridge_path` with an intercept. The smoothing matrix S has residuals ``(I - S)_FF^-1 ((I - S) Y)_F`` on a fold F.
    """
    kernel, Y, constant = _centered(kernel, Y, roots, intercept=True)
    rest = ridge * np.linalg.inv(kernel + ridge * np.eye(len(Y))) - np.outer(constant, constant)
    residuals, left_out = np.full(Y.shape, np.nan), rest @ Y
    for fold in folds:
        block = rest[np.ix_(fold, fold)] + MIN_GAP * np.eye(len(fold))
        residuals[fold] = np.linalg.solve(block, left_out[fold])
    return residuals


def _centered(kernel, Y, roots, intercept):
    """Kernel and targets times `roots`, without the constant if there is an `intercept`, and the constant (n,)."""
    kernel, Y, constant = roots[:, None] * kernel * roots, roots[:, None] * Y, np.zeros(len(Y))
    if intercept:
        constant = roots / np.linalg.norm(roots)
        kernel -= np.outer(constant, constant @ kernel)
        kernel -= np.outer(kernel @ constant, constant)
        Y = Y - np.outer(constant, constant @ Y)
    return kernel, Y, constant
