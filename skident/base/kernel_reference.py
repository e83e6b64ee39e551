"""Kernel ridge regression: its errors on samples left out, as a reference for other fits."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skident.budget.constants import MIN_GAP
from skident.linalg import column_units

__all__ = ["is_significantly_better", "kernel_residuals", "kernel_squared_errors"]

_WIDTHS = (0.3, 1.0)  # factors of the squared distance over its mean: kernels of two widths
_RIDGES = np.logspace(-4, 1.5, 12)  # relative to the mean diagonal of the kernel
_FEW_SAMPLES = 10.0  # over n, added to the margin: standard errors are uncertain for a dozen samples


def kernel_squared_errors(X, y, *, standardize=True, widths=_WIDTHS, ridges=_RIDGES):
    """Squared leave-one-out errors (n,) of kernel ridge regression of y (n,) or (n, k), summed over targets.

    A Gaussian kernel of the width and ridge of the least mean error, on the columns of X (n, D), standardized unless
    `standardize` is False. One eigendecomposition of order n per width: for n up to about 1,000.
    """
    X = _standardized(X) if standardize else X
    choices = [_left_out(kernel, y.reshape(len(y), -1), ridges) for kernel in _gaussians(X, widths)]
    return np.sum(min(choices, key=_mean_square) ** 2, axis=1)


def kernel_residuals(X, Y, kind, folds=None):
    """Residuals (n, k) of kernel ridge regression of Y (n, k) on samples left out, alone or by folds.

    `kind` is "linear", "degree two" or "Gaussian", on standardized columns of X (n, D). Width and ridge are those of
    the least leave-one-out error. Samples outside of all folds are left out alone.
    """
    X = _standardized(X)
    if kind == "Gaussian":
        kernels = list(_gaussians(X, _WIDTHS))
    else:
        products = X @ X.T / X.shape[1]
        kernels = [products if kind == "linear" else (1.0 + products) ** 2]
    return min((_left_out(kernel, Y, _RIDGES, folds) for kernel in kernels), key=_mean_square)


def _standardized(X):
    mean, scale = column_units(X)
    return (X - mean) / scale


def _mean_square(residuals):
    return float(np.mean(residuals**2))


def _gaussians(X, widths):
    """Gaussian kernels of some widths."""
    distances = euclidean_distances(X, squared=True)
    distances /= max(distances.mean(), np.finfo(float).tiny)
    for width in widths:
        yield np.exp(-distances * width)


def _left_out(kernel, Y, ridges, folds=None):
    """Residuals (n, k) of samples left out, with the ridge of the least leave-one-out error.

    The smoothing matrix S has residuals ``(I - S)_FF^-1 ((I - S) Y)_F`` on a fold F that is left out (that of one
    sample is the usual quotient); constants are not penalized.
    """
    n, Y = len(Y), Y - Y.mean(axis=0)
    centered = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
    values, U = np.linalg.eigh(centered)
    ridges = ridges * max(float(np.mean(np.diag(kernel))), np.finfo(float).tiny)
    left = ridges[:, None] / (np.maximum(values, 0.0) + ridges[:, None])
    fitted = np.stack([U @ (part[:, None] * (U.T @ Y)) for part in left])
    own = np.maximum(left @ (U * U).T - 1.0 / n, MIN_GAP)
    residuals = fitted / own[..., None]
    best = int(np.argmin(np.sum(residuals**2, axis=(1, 2))))
    residuals = residuals[best]
    for fold in [] if folds is None else folds:
        block = (U[fold] * left[best]) @ U[fold].T - 1.0 / n + MIN_GAP * np.eye(len(fold))
        residuals[fold] = np.linalg.solve(block, fitted[best][fold])
    return residuals


def is_significantly_better(rival, squares, margin=1.0):
    """Whether squared errors are below a rival's on the same samples by more than chance.

    `margin` is in standard errors of the mean difference; 10 / n is added, as these are uncertain for a dozen samples.
    """
    gain, n = rival - squares, len(rival)
    return bool(gain.mean() > (margin + _FEW_SAMPLES / n) * gain.std(ddof=1) / np.sqrt(n))
