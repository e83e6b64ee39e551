"""Reweighted least squares by orthogonal factors: equations of known errors, of which some belong to something else."""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from skident.budget.constants import MAD
from skident.linalg import lapack

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


def robust_fit(A, y, errors, n_rounds=_ROUNDS):
    """Minimize ``sum log(1 + (r / 4 s)^2)`` of residuals ``r = (A x - y) / errors``."""
    A, y = A / errors[:, None], y / errors
    size = np.linalg.norm(A, axis=0)
    size = np.where(size > 0, size, 1.0)
    ridge = np.eye(A.shape[1]) * _RIDGE
    weight = np.ones(len(y))
    for _ in range(n_rounds):
        rows = np.vstack([A * weight[:, None] / size, ridge])
        Q, R = lapack.scipy_qr(rows, mode="economic", overwrite_a=True, check_finite=False)
        target = np.concatenate([y * weight, np.zeros(len(size))])
        x = scipy.linalg.solve_triangular(R, Q.T @ target, check_finite=False) / size
        deviation = A @ x - y
        scale = _CAUCHY * max(1.0, MAD * np.median(np.abs(deviation)))
        weight, before = 1.0 / (1.0 + (deviation / scale) ** 2), weight
        if np.abs(weight - before).max(initial=0.0) < _SETTLED:
            break
    inverse = scipy.linalg.solve_triangular(R, np.eye(len(size)), check_finite=False) / size[:, None]
    return RobustSolution(x, deviation, inverse @ inverse.T)
