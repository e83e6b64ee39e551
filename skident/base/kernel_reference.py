"""Kernel ridge regression: the leave-one-out errors of a smooth function, as a reference for other fits."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skident.budget.constants import CLEAR_GAIN, SCORE_ERRORS
from skident.linalg import column_units
from skident.linalg.kernel_ridge import ridge_path

__all__ = ["clearly_better_kernel_r2", "compared_samples", "is_significantly_better", "kernel_squared_errors"]

_WIDTHS = (0.3, 1.0)  # factors of the squared distance over its mean: kernels of two widths
_RIDGES = np.logspace(-4, 1.5, 12)  # relative to the diagonal of the kernel, which is 1
_MAX_SAMPLES = 500  # that are compared: an eigendecomposition of that order per width (budget)
_FEWEST_SAMPLES = 30  # below, no comparison
_FEW_SAMPLES = 10.0  # over n, added to the margin: standard errors are uncertain for a dozen samples


def kernel_squared_errors(X, y, weights=None, *, standardize=True, widths=_WIDTHS, ridges=_RIDGES):
    """Squared leave-one-out errors (n,) of kernel ridge regression of y (n,) or (n, k), summed over targets.

    A Gaussian kernel of the width and ridge of the least mean error, on the columns of X (n, D), standardized unless
    `standardize` is False. One eigendecomposition of order n per width: for n up to about 500. The errors are
    multiplied by the `weights` (n,) of the samples.
    """
    roots = np.ones(len(X)) if weights is None else np.sqrt(weights)
    if standardize:
        mean, scale = column_units(X, weights=weights)
        X = (X - mean) / scale
    distances = euclidean_distances(X, squared=True)
    distances /= max(distances.mean(), np.finfo(float).tiny)
    Y = y.reshape(len(y), -1)
    kernels = (np.exp(-distances * width) for width in widths)
    paths = (ridge_path(kernel, Y, ridges, intercept=True, roots=roots)[0] for kernel in kernels)
    return min(np.concatenate([np.sum(path**2, axis=2) for path in paths]), key=np.mean)


def compared_samples(n):
    """Indices of at most 500 of n samples, evenly spaced, on which a kernel is compared; none of fewer than 30."""
    return np.linspace(0, n - 1, min(n, _MAX_SAMPLES)).astype(int) if n >= _FEWEST_SAMPLES else np.empty(0, dtype=int)


def is_significantly_better(rival, squares, margin=1.0):
    """Whether squared errors are below a rival's on the same samples by more than chance.

    `margin` is in standard errors of the mean difference; 10 / n is added, as these are uncertain for a dozen samples.
    """
    gain, n = rival - squares, len(rival)
    return bool(gain.mean() > (margin + _FEW_SAMPLES / n) * gain.std(ddof=1) / np.sqrt(n))


def clearly_better_kernel_r2(X, y, squares, weights=None):
    """Leave-one-out R^2 of kernel ridge regression of y (n,) on X (n, D), if clearly above that of a fit; else NaN.

    `squares` (n,) are the squared leave-one-out errors of the fit, times the `weights` (n,) of the samples. At most 500
    samples are compared.
    """
    w = np.ones(len(y)) if weights is None else weights
    variance, some = float(np.average((y - np.average(y, weights=w)) ** 2, weights=w)), compared_samples(len(y))
    if not len(some):
        return np.nan
    kernel = kernel_squared_errors(X[some], y[some], w[some])
    better = float(np.mean(squares[some] - kernel)) > CLEAR_GAIN * variance
    if not better or not is_significantly_better(squares[some], kernel, SCORE_ERRORS):
        return np.nan
    return 1.0 - float(np.mean(kernel)) / variance
