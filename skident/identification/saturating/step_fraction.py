"""Outputs projected on the jump between a unit's two limits: 0 before, 1 after."""

import numpy as np
from numpy.polynomial import chebyshev

from ..query_points import query_block

_NEWTON_STEPS = 12  # quadratic convergence from 0: four steps reach rounding, the others are for series bent by noise


class StepFraction:
    """Projection of outputs on the line between the two ends of each of t steps.

    `query` maps points (n, D) to outputs (n, m_L), in units of the noise if there is any. `heights` (t,) are the
    distances between the outputs before and after; 0 for a step that returns to its start.
    """

    def __init__(self, query, steps):
        jump = np.array([s.after - s.before for s in steps])
        self._query, self.heights, self.n_outputs = query, np.linalg.norm(jump, axis=1), jump.shape[1]
        height = np.where(self.heights > 0, self.heights, 1.0)[:, None]
        self._before, self._jump = np.array([s.before for s in steps]), jump / height**2

    def outputs(self, U):
        """Outputs (..., m_L) at a block of points (..., D)."""
        return query_block(self._query, U)

    def __call__(self, index, U):
        """Fractions (t, k) of the steps `index` (t,) at points U (t, k, D)."""
        return np.einsum("tkp,tp->tk", self.outputs(U) - self._before[index][:, None], self._jump[index])

    def of_series(self, curves):
        """Chebyshev coefficients (d, t) of the fraction from those of the outputs, (t, d, m_L)."""
        curves = curves.copy()
        curves[:, 0] -= self._before
        return np.einsum("tdp,tp->dt", curves, self._jump)

    def change(self, index, U):
        """Distances (t, k - 1) of the outputs at ``U[:, 1:]`` from those at ``U[:, 0]``, relative to the heights.

        All outputs count: where two units cross together, the fraction can stay while the outputs change.
        """
        F = self.outputs(U)
        return np.linalg.norm(F[:, 1:] - F[:, :1], axis=2) / self.heights[index][:, None]


def solve_series(coefficients, values, bound):
    """Points (t, k) in ``[-bound, bound]`` where t Chebyshev series (d, t) take values (t, k), by Newton's method.

    NaN or ``+-bound`` if there is no solution.
    """
    value, slope = coefficients[:, :, None], chebyshev.chebder(coefficients)[:, :, None]
    x = np.zeros_like(values)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(_NEWTON_STEPS):
            f = chebyshev.chebval(x, value, tensor=False) - values
            x = np.clip(x - f / chebyshev.chebval(x, slope, tensor=False), -bound, bound)
    return x


def as_of_tanh(z, g):
    """Pre-activations at which a sigmoid g has risen as far as tanh has at z, to first order."""
    low, high = g.limits
    return z * (high - low) / (2.0 * g.jet(np.zeros(1), 1)[1][0])
