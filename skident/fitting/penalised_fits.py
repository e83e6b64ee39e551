"""Fits of many networks at once with a Gaussian prior on their parameters: units that fit noise are large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batched_fits import BatchedNetworkFits

__all__ = ["PenalisedNetworkFits", "Prior"]

_LEAST = 1e-4  # variance of a kind of parameters
_MEDIAN = 0.455  # of the square of a standard normal variable


@dataclass(frozen=True)
class Prior:
    """Variances of the parameters of a network, alike for the weights of a layer and for its shifts, and of the noise.

    Attributes
    ----------
    weights, shifts : tuple of float
        One a layer.
    noise : float
        Of an answer.
    """

    weights: tuple
    shifts: tuple
    noise: float

    @classmethod
    def like(cls, network, noise):
        """The prior that a network's parameters are typical of: medians over units, for some may fit noise.

        Parameters
        ----------
        network : FeedforwardNetwork
        noise : float
            Variance of the noise in an answer.

        Returns
        -------
        Prior
        """
        weights = [max(float(np.median(np.mean(W**2, axis=0))), _LEAST) for W in network.weights]
        shifts = [max(float(np.median(b**2)) / _MEDIAN, _LEAST) for b in network.biases]
        return cls(tuple(weights), tuple(shifts), noise)

    def penalty(self, shapes):
        """What multiplies the squares of the parameters, beside the sum of squared residuals.

        Parameters
        ----------
        shapes : sequence of (int, int)
            Of the layers' weights.

        Returns
        -------
        ndarray of shape (P,)
            The shifts of the outputs are free.
        """
        parts = []
        for layer, (a, c) in enumerate(shapes):
            last = layer == len(shapes) - 1
            shift = 0.0 if last else self.noise / self.shifts[layer]
            parts += [np.full(a * c, self.noise / self.weights[layer]), np.full(c, shift)]
        return np.concatenate(parts)


class PenalisedNetworkFits(BatchedNetworkFits):
    """``sum_n w_n ||f(u_n; theta) - y_n||^2 + noise sum_k theta_k^2 / variance_k`` for B networks.

    Parameters
    ----------
    architecture : Architecture
    rows : Rows
    prior : Prior

    Notes
    -----
    The minimum is the most likely network where parameters are Gaussian with the prior's variances.
    """

    def __init__(self, architecture, rows, prior):
        super().__init__(architecture, rows)
        self.penalty = prior.penalty(self.shapes)

    def cost(self, x):
        """Weighted sums of squared residuals, and the penalties.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        ndarray of shape (B,)
        """
        return super().cost(x) + x**2 @ self.penalty

    def normal_equations(self, x):
        """Gauss-Newton matrices and gradients.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        matrix : ndarray of shape (B, P, P)
        gradient : ndarray of shape (B, P)
        """
        matrix, gradient = super().normal_equations(x)
        return matrix + np.diag(self.penalty), gradient + x * self.penalty
