"""Norms and biases of free first-layer units, from derivatives at many levels of their pre-activations."""

import numpy as np

from skident.linalg import svd
from skident.optim import DenseJacobian, levenberg_marquardt

from .products import LEAST_OF_LEVELS, clear_gaps, scaled_rows

_STARTS_OF_LEVELS = 6  # the first one at the norms and biases known (budget)
_MAX_STEPS = 30  # of Gauss-Newton (budget)
_BIAS_SD = 0.3  # of further starts: about the error of biases from profiles
_CLEAR_GAP = 0.1  # ratio of neighboring singular values, up to the rank, below which no further start is made
_DIFFERENCE = 1e-5  # by norms and biases
_LARGEST = 1.0, 3.0  # log norm and bias; beyond, derivatives vanish
_INSIDE = 0.95  # of these: solutions at the limits have low ranks whatever the network is


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

    def fitted(self, products, T, guess, most, rng):
        """Log norms and biases (2 k,) for which products from T (n, P, s) are those of few units; NaN without any.

        As many as the guess, or up to `most`: where the gap of singular values is clearest.
        """
        problem, k = _Rank(self, products, T), self.levels.shape[1]
        best, clearest = np.full(2 * k, np.nan), _CLEAR_GAP
        for rank in dict.fromkeys((most, min(guess, most))):
            for attempt in range(_STARTS_OF_LEVELS):
                start = np.append(np.zeros(k), (_BIAS_SD if attempt else 0.0) * rng.standard_normal(k))
                x = problem.least(start, rank)
                ranks, gaps = clear_gaps(svd(problem.values(x), compute_uv=False)[: rank + 1], LEAST_OF_LEVELS)
                gap = gaps[ranks <= rank].min()
                if gap < _CLEAR_GAP and np.all(np.abs(x) < _INSIDE * np.repeat(_LARGEST, k)):
                    best, clearest = (x, gap) if gap < clearest else (best, clearest)
                    break
        return best


class _Rank:
    """The part of products beyond a rank, by norms and biases.

    In outputs of the units themselves, derivatives of one order at any level are sums of the products of m_2 units.
    """

    def __init__(self, levels, products, T):
        self.levels, self.products, self.T = levels, products, T

    def values(self, x):
        """Rows and columns of norm one: few columns are nearly all at large biases, and their rank is low."""
        C = scaled_rows(self.products.rows(self.products.values(self.T, *self.levels.relative(x))))
        return scaled_rows(C.T).T

    def least(self, start, rank):
        """Log norms and biases by Gauss-Newton on ``U_2^T C V_2``: singular values beyond the rank."""
        k = len(start) // 2

        def cost(x):
            if np.any(np.abs(x) > np.repeat(_LARGEST, k)):
                return np.inf
            return float(np.sum(svd(self.values(x), compute_uv=False)[rank:] ** 2))

        def linearize(x):
            C = self.values(x)
            U, _, Vt = svd(C, full_matrices=True)
            left, right = U[:, rank:].T, Vt[rank:].T
            moved = (self.values(x + e) - self.values(x - e) for e in _DIFFERENCE * np.eye(2 * k))
            J = np.stack([(left @ change @ right).ravel() for change in moved], axis=1) / (2.0 * _DIFFERENCE)
            return DenseJacobian(J, (left @ C @ right).ravel())

        return levenberg_marquardt(cost, linearize, start, max_iter=_MAX_STEPS, ftol=1e-2).x
