"""Norms and biases of units from the slopes of their activation along the input."""

import numpy as np
from scipy.optimize import least_squares

from skident.budget import check_deadline

_NORM_GRID = np.geomspace(0.02, 12.0, 80)  # trial weight norms over half the rate (grid ratio 1.08: one valley)
_CURVATURE_NORMS = np.geomspace(0.1, 6.0, 25)  # trial weight norms of tanh units (grid ratio 1.2)
_CURVATURE_BIASES = np.linspace(-2.5, 2.5, 26)  # trial biases of them: beyond, they hardly bend
_LEAST_PROFILE = 1e-12  # of a profile, relative to its largest value: rounding of differences


def fit_profiles(q, e):
    """Norms, biases and relative residuals (m,) with which profiles e (n, m) are ``C / cosh(norm q + bias)^2``.

    ``e^(-1/2)`` is linear in ``exp(norm q)`` and ``exp(-norm q)``: a grid of norms, then least squares in all three.
    """
    fits = [_fit_profile(q[:, k], e[:, k]) for k in range(q.shape[1])]
    return tuple(np.array(part) for part in zip(*fits, strict=True))


def _fit_profile(q, e):
    """Norm, bias and relative residual of one profile e (n,) at positions q (n,)."""
    check_deadline()
    e = e * np.sign(np.median(e))
    y = 1.0 / np.sqrt(np.maximum(e, _LEAST_PROFILE * np.abs(e).max()))
    norm, c = _best_of_grid(q, y)
    x0 = [norm, 0.5 * np.log(c[0] / c[1]), np.log(2.0 * np.sqrt(c[0] * c[1]))]

    def relative(x):
        with np.errstate(over="ignore"):
            return np.minimum(np.exp(x[2]) * np.cosh(x[0] * q + x[1]) / y, np.finfo(np.float32).max) - 1.0

    fit = least_squares(relative, x0, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return fit.x[0], fit.x[1], np.sqrt(np.mean(fit.fun**2))


def _best_of_grid(q, y):
    """The trial norm and positive coefficients (2,) of ``exp(norm q)`` and ``exp(-norm q)`` closest to y (n,)."""
    z = _NORM_GRID[:, None] * (q - q.mean())
    B = np.stack([np.exp(z), np.exp(-z)], axis=2) / y[:, None]
    scale = np.linalg.norm(B, axis=1)
    unit = B / scale[:, None]
    cosine, sums = np.sum(unit[..., 0] * unit[..., 1], axis=1), unit.sum(axis=1)
    c = (sums - cosine[:, None] * sums[:, ::-1]) / np.maximum(1.0 - cosine**2, np.finfo(float).eps)[:, None]
    left = np.where((c > 0.0).all(axis=1), len(y) - np.sum(c * sums, axis=1), np.inf)
    best = int(np.argmin(left))
    norm = _NORM_GRID[best]
    if not np.isfinite(left[best]):  # no positive combination: a flat profile about its middle
        return 1.0, np.full(2, 0.5 * np.median(y))
    return norm, c[best] / scale[best] * np.exp(norm * q.mean() * np.array([-1.0, 1.0]))


def fit_curvatures(q, curvatures, slopes):
    """Norms, biases and relative residuals (m,) of curvatures (n, m) ``-2 norm tanh(norm q + bias)`` times slopes.

    A tanh unit bends so at positions q (n, m) along its weights, whatever follows it. A grid, then least squares.
    """
    fits = [_fit_curvature(q[:, k], curvatures[:, k], slopes[:, k]) for k in range(q.shape[1])]
    return tuple(np.array(part) for part in zip(*fits, strict=True))


def _fit_curvature(q, curvature, slope):
    """Norm, bias and relative residual of one unit; within the grid."""
    check_deadline()
    norms, biases = (x.reshape(-1, 1) for x in np.meshgrid(_CURVATURE_NORMS, _CURVATURE_BIASES))

    def left(x):
        return curvature + 2.0 * x[0] * np.tanh(x[0] * q + x[1]) * slope

    start = int(np.argmin(np.sum(left((norms, biases)) ** 2, axis=1)))
    bounds = ([_CURVATURE_NORMS[0], 2.0 * _CURVATURE_BIASES[0]], [_CURVATURE_NORMS[-1], 2.0 * _CURVATURE_BIASES[-1]])
    fit = least_squares(left, [norms[start, 0], biases[start, 0]], bounds=bounds)
    return fit.x[0], fit.x[1], float(np.sqrt(2.0 * fit.cost / max(np.sum(curvature**2), np.finfo(float).tiny)))
