"""How far answers have come from one end of a step to the other."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev

from ..query_points import query_block

__all__ = ["StepFraction", "as_of_tanh", "solve_series"]


class StepFraction:
    """Where answers stand between the two ends of their steps: 0 before, 1 after.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L), in units of the noise if there is some.
    steps : list of Step

    Attributes
    ----------
    heights : ndarray of shape (t,)
        Distance of the answers before and after every step; 0 where they come back to what they were.
    n_outputs : int
    """

    def __init__(self, ask, steps):
        jump = np.array([s.after - s.before for s in steps])
        self._ask, self.heights, self.n_outputs = ask, np.linalg.norm(jump, axis=1), jump.shape[1]
        unit = np.where(self.heights > 0, self.heights, 1.0)[:, None]
        self._before, self._jump = np.array([s.before for s in steps]), jump / unit**2

    def answers(self, U):
        """Answers at a block of points.

        Parameters
        ----------
        U : ndarray of shape (..., D)

        Returns
        -------
        ndarray of shape (..., m_L)
        """
        return query_block(self._ask, U)

    def __call__(self, index, U):
        """StepFraction (t, k) of steps `index` (t,) at U (t, k, D)."""
        return np.einsum("tkp,tp->tk", self.answers(U) - self._before[index][:, None], self._jump[index])

    def of_series(self, curves):
        """StepFraction of answers that are Chebyshev series of one variable, step by step.

        Parameters
        ----------
        curves : ndarray of shape (t, d, m_L)
            Coefficients of the answers.

        Returns
        -------
        ndarray of shape (d, t)
            Coefficients of the progress.
        """
        curves = curves.copy()
        curves[:, 0] -= self._before
        return np.einsum("tdp,tp->dt", curves, self._jump)

    def change(self, index, U):
        """Distances of answers at ``U[:, 1:]`` from those at ``U[:, 0]``, relative to the step's height.

        In all outputs: of two units that cross together the progress can stay while the answers do not.

        Parameters
        ----------
        index : ndarray of shape (t,)
            Which steps.
        U : ndarray of shape (t, k, D)

        Returns
        -------
        ndarray of shape (t, k - 1)
        """
        F = self.answers(U)
        return np.linalg.norm(F[:, 1:] - F[:, :1], axis=2) / self.heights[index][:, None]


def solve_series(coefficients, values, bound):
    """Where Chebyshev series take given values, by Newton's iteration from 0.

    Parameters
    ----------
    coefficients : ndarray of shape (d, t)
        Of t series.
    values : ndarray of shape (t, k)
    bound : float
        The solutions' largest absolute value: iterates are clipped there.

    Returns
    -------
    ndarray of shape (t, k)
        NaN or of size `bound` where there is no solution.
    """
    value, slope = coefficients[:, :, None], chebyshev.chebder(coefficients)[:, :, None]
    x = np.zeros_like(values)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(12):
            f = chebyshev.chebval(x, value, tensor=False) - values
            x = np.clip(x - f / chebyshev.chebval(x, slope, tensor=False), -bound, bound)
    return x


def as_of_tanh(z, g):
    """Pre-activations as far up another sigmoid's step as z is up that of tanh, to first order.

    Parameters
    ----------
    z : float or ndarray
    g : Activation
        Saturating, with a slope at 0.

    Returns
    -------
    float or ndarray
    """
    low, high = g.limits
    return z * (high - low) / (2.0 * g.jet(np.zeros(1), 1)[1][0])
