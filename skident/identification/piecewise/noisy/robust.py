"""Reweighted least squares by orthogonal factors: equations of known errors, of which some belong to something else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from skident.budget.constants import MAD
from skident.linalg import lapack

__all__ = ["RobustSolution", "least_absolute_fit", "robust_fit"]

_CAUCHY = 4.0  # deviations from which a residual counts for less
_ROUNDS = 15  # reweightings at most
_SETTLED = 0.05  # largest change of a weight that ends the reweighting
_RIDGE = 1e-13  # of the columns' sizes: columns that no equation determines


class RobustSolution(NamedTuple):
    """A solution of equations ``A x = y``."""

    solution: np.ndarray  # (q,)
    deviation: np.ndarray  # (n,), residuals over their errors
    covariance: np.ndarray  # (q, q)

    @property
    def residual(self):
        """Median residual over the errors."""
        return float(np.median(np.abs(self.deviation)))

    def within(self, n_deviations):
        """Mask (n,) of the equations that are satisfied up to that many deviations, at least as large as the errors."""
        return np.abs(self.deviation) < n_deviations * max(1.0, MAD * self.residual)


def robust_fit(A, y, errors, prior=None, n_rounds=_ROUNDS):
    """Minimize ``sum log(1 + (r / 4 s)^2)`` of residuals ``r = (A x - y) / errors``, and the squares of a prior.

    `prior` are further equations ``(P, p)`` in units of their errors, which always hold.
    """
    A, y = A / errors[:, None], y / errors
    P, p = (np.zeros((0, A.shape[1])), np.zeros(0)) if prior is None else prior
    size = np.sqrt(np.sum(A**2, axis=0) + np.sum(P**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    ridge = np.eye(A.shape[1]) * _RIDGE
    weight = np.ones(len(y))
    for _ in range(n_rounds):
        rows = np.vstack([A * weight[:, None] / size, P / size, ridge])
        Q, R = lapack.scipy_qr(rows, mode="economic", overwrite_a=True, check_finite=False)
        target = np.concatenate([y * weight, p, np.zeros(len(size))])
        x = scipy.linalg.solve_triangular(R, Q.T @ target, check_finite=False) / size
        deviation = A @ x - y
        scale = _CAUCHY * max(1.0, MAD * np.median(np.abs(deviation)))
        weight, before = 1.0 / (1.0 + (deviation / scale) ** 2), weight
        if np.abs(weight - before).max(initial=0.0) < _SETTLED:
            break
    inverse = scipy.linalg.solve_triangular(R, np.eye(len(size)), check_finite=False) / size[:, None]
    return RobustSolution(x, deviation, inverse @ inverse.T)


def least_absolute_fit(A, Y, tol, floor=1.0, n_rounds=25):
    """Coefficients (q, m_L) of ``A x = Y`` by least absolute deviations, and residuals (n,) over `tol`, a number.

    Residuals below ``floor tol`` weigh no more. Almost half of the equations may be wrong.
    """
    size = np.sqrt(np.sum(A**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    ridge, weight = _RIDGE * np.eye(A.shape[1]), np.ones(len(Y))
    for _ in range(n_rounds):
        rows = np.vstack([A * weight[:, None] / size, ridge])
        Q, R = lapack.scipy_qr(rows, mode="economic", overwrite_a=True, check_finite=False)
        target = np.vstack([Y * weight[:, None], np.zeros((len(size), Y.shape[1]))])
        x = scipy.linalg.solve_triangular(R, Q.T @ target, check_finite=False) / size[:, None]
        residual = np.linalg.norm(A @ x - Y, axis=1) / tol
        weight, before = 1.0 / np.sqrt(np.maximum(residual / floor, 1.0)), weight
        if np.abs(weight - before).max() < _SETTLED * _SETTLED:
            break
    return x, residual
