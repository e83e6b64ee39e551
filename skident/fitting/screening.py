"""Units that explain most of what a fit of a network with one hidden layer leaves over, without fits of theirs.

The residuals and the outputs of a unit are compared after the part that a change of the parameters of the fit explains
to first order is removed from both: other units make up for much of one that is missing.
"""

import numpy as np
import scipy.linalg

from skident.budget.constants import RANDOM_UNITS, RIDGE, TINY
from skident.linalg import lapack

from .standard_errors import parameter_jacobian

_SIZES = (1.0, 0.3, 0.1, 0.03)  # relative changes of the best units by which others are drawn, in turn


class Unexplained:
    """What a network leaves over of a `FitSample`: memory for twice its Jacobian."""

    def __init__(self, network, rows):
        J = parameter_jacobian(network, rows.inputs) / rows.std.reshape(-1, 1)
        self.J, self.rows = J / np.maximum(np.linalg.norm(J, axis=0), TINY), rows
        A = self.J.T @ self.J
        A.flat[:: len(A) + 1] += RIDGE * len(A)
        self.factor = lapack.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        self.residual = self._rest(((rows.outputs - network(rows.inputs)) / rows.std).reshape(-1, 1))

    def _rest(self, F):
        return F - self.J @ scipy.linalg.cho_solve(self.factor, self.J.T @ F)

    def gains(self, planes, feature):
        """Decreases (k,) of the sum of squares by units ``feature(w . u + b)`` of (D + 1, k), each alone."""
        H, std = feature(self.rows.inputs @ planes[:-1] + planes[-1]), self.rows.std
        total = np.zeros(planes.shape[1])
        for j in range(std.shape[1]):
            F = np.zeros((*std.shape, len(total)))
            F[:, j] = H / std[:, j : j + 1]
            F = self._rest(F.reshape(len(self.residual), -1))
            total += (self.residual[:, 0] @ F) ** 2 / np.maximum(np.sum(F**2, axis=0), TINY)
        return total


def screened_planes(unexplained, feature, draw, rng, n_new):
    """Hyperplanes (D + 1, n_new) of the best units, of random ones, ``draw(n)``, and others near the best of these."""
    best, gains = draw(0), np.empty(0)
    for size in _SIZES:
        n_known = best.shape[1]
        if n_known:
            planes = near_planes(best[:, rng.randint(n_known, size=RANDOM_UNITS)], size, rng)
        else:
            planes = draw(RANDOM_UNITS)
        best, gains = np.hstack([best, planes]), np.concatenate([gains, unexplained.gains(planes, feature)])
        order = np.argsort(-gains)[:n_new]
        best, gains = best[:, order], gains[order]
    return best


def near_planes(planes, size, rng):
    """Random hyperplanes near given ones (D + 1, k), at distances relative to their norms."""
    spread = size * np.linalg.norm(planes, axis=0) / np.sqrt(len(planes))
    return planes + spread * rng.standard_normal(planes.shape)
