"""Norms and biases of free first-layer units, from derivatives at many levels of their pre-activations."""

from __future__ import annotations

import numpy as np

from skident.linalg import svd
from skident.optim import DenseJacobian, levenberg_marquardt

from .products import scaled_rows

__all__ = ["Levels"]

_STARTS = 6  # the first one at the norms and biases known (budget)
_BIAS_SD = 0.3  # of further starts: about the error of biases from profiles
_CLEAR = 0.1  # ratio of the singular values beyond and up to the rank at which no further start is made
_STEP = 1e-5  # of differences by norms and biases
_LARGEST = 1.0, 3.0  # log norm and bias; beyond, derivatives vanish


class Levels:
    """Levels (n, k) of pre-activations of free units, given the activation g."""

    def __init__(self, g, levels):
        low, high = g.limits
        self.g, self.levels = g, levels
        _, slope, bend = g.jet(levels, 2)
        self.slope, self.curvature, self.size = slope, bend / slope, 2.0 / (high - low)

    def relative(self, x):
        """Slopes and curvatures (n, k) of outputs with log norms and biases x (2 k,), by the outputs as known."""
        log_norms, biases = np.split(x, 2)
        _, slope, bend = self.g.jet(np.exp(log_norms) * self.levels + biases, 2)
        slope, bend = np.maximum(slope, np.finfo(float).tiny), bend * np.exp(log_norms)
        curvature = (bend / slope - self.curvature) / (self.size * self.slope)
        return slope * np.exp(log_norms) / self.slope, curvature

    def fitted(self, products, T, rank, rng):
        """Log norms and biases (2 k,) for which products from T (n, P, s) have the rank, as far as they can.

        In outputs of the units themselves derivatives of one order, at any level, are sums of the products of m_2
        units. Gauss-Newton on the singular values beyond, which are ``U_2^T C V_2`` to first order.
        """
        k = self.levels.shape[1]

        def values(x):
            return scaled_rows(products.rows(products.values(T, *self.relative(x))))

        def cost(x):
            if np.any(np.abs(x) > np.repeat(_LARGEST, k)):
                return np.inf
            return float(np.sum(svd(values(x), compute_uv=False)[rank:] ** 2))

        def linearize(x):
            U, _, Vt = svd(values(x), full_matrices=True)
            left, right = U[:, rank:].T, Vt[rank:].T
            moved = (values(x + e) - values(x - e) for e in _STEP * np.eye(2 * k))
            J = np.stack([(left @ C @ right).ravel() for C in moved], axis=1) / (2.0 * _STEP)
            return DenseJacobian(J, (left @ values(x) @ right).ravel())

        best, lowest = np.zeros(2 * k), np.inf
        for attempt in range(_STARTS):
            start = np.append(np.zeros(k), (_BIAS_SD if attempt else 0.0) * rng.standard_normal(k))
            found = levenberg_marquardt(cost, linearize, start, max_iter=30, ftol=1e-2)
            best, lowest = (found.x, found.cost) if found.cost < lowest else (best, lowest)
            s = svd(values(best), compute_uv=False)
            if rank >= len(s) or s[rank] < _CLEAR * s[rank - 1]:
                break
        return best
