"""Kernel ridge regression: its errors on samples left out, as a reference for other fits."""

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from skident.linalg import column_units
from skident.linalg.kernel_ridge import fold_residuals, ridge_path

_WIDTHS = (0.3, 1.0)  # factors of the squared distance over its mean: kernels of two widths
_RIDGES = np.logspace(-4, 1.5, 12)  # relative to the mean diagonal of the kernel
_FEW_SAMPLES = 10.0  # over n, added to the margin: standard errors are uncertain for a dozen samples


def kernel_squared_errors(X, y, weights=None, *, standardize=True, widths=_WIDTHS, ridges=_RIDGES):
    """Squared leave-one-out errors (n,) of kernel ridge regression of y (n,) or (n, k), summed over targets.

    A Gaussian kernel of the width and ridge of the least mean error, on the columns of X (n, D), standardized unless
    `standardize` is False. One eigendecomposition of order n per width: for n up to about 1,000. The errors are
    multiplied by the `weights` (n,) of the samples.
    """
    X = _standardized(X, weights) if standardize else X
    return np.sum(_best(_gaussians(X, widths), y.reshape(len(y), -1), ridges, _roots(X, weights))[0] ** 2, axis=1)


def kernel_residuals(X, Y, kind, folds=None, weights=None):
    """Residuals (n, k) of kernel ridge regression of Y (n, k) on samples left out, alone or by folds.

    `kind` is "linear", "degree two" or "Gaussian", on standardized columns of X (n, D). Width and ridge are those of
    the least leave-one-out error. Samples outside of all folds have NaN. `weights` (n,) are those of the samples.
    """
    X, roots = _standardized(X, weights), _roots(X, weights)
    if kind == "Gaussian":
        kernels = _gaussians(X, _WIDTHS)
    else:
        products = X @ X.T / X.shape[1]
        kernels = [products if kind == "linear" else (1.0 + products) ** 2]
    residuals, kernel, ridge = _best(kernels, Y, _RIDGES, roots)
    if folds is not None:
        residuals = fold_residuals(kernel, Y, ridge, folds, roots)
    return residuals / roots[:, None]


def _roots(X, weights):
    return np.ones(len(X)) if weights is None else np.sqrt(weights)


def _standardized(X, weights):
    mean, scale = column_units(X, weights=weights)
    return (X - mean) / scale


def _gaussians(X, widths):
    """Gaussian kernels of some widths."""
    distances = euclidean_distances(X, squared=True)
    distances /= max(distances.mean(), np.finfo(float).tiny)
    return (np.exp(-distances * width) for width in widths)


def _best(kernels, Y, ridges, roots):
    """Leave-one-out residuals (n, k) times roots, the kernel and the ridge of the least mean square."""
    found = []
    for kernel in kernels:
        scaled = ridges * max(float(np.mean(np.diag(kernel))), np.finfo(float).tiny)
        path = ridge_path(kernel, Y, scaled, intercept=True, roots=roots)[0]
        best = int(np.argmin(np.sum(path**2, axis=(1, 2))))
        found.append((path[best], kernel, scaled[best]))
    return min(found, key=lambda one: np.sum(one[0] ** 2))


def is_significantly_better(rival, squares, margin=1.0):
    """Whether squared errors are below a rival's on the same samples by more than chance.

    `margin` is in standard errors of the mean difference; 10 / n is added, as these are uncertain for a dozen samples.
    """
    gain, n = rival - squares, len(rival)
    return bool(gain.mean() > (margin + _FEW_SAMPLES / n) * gain.std(ddof=1) / np.sqrt(n))
