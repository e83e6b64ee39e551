"""Fits of many networks at once with a Gaussian prior on their parameters: units that fit noise are large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.network import get_activation

from .batched_fits import BatchedNetworkFits

__all__ = ["PenalisedNetworkFits", "Prior"]

_LEAST = 1e-4  # variance of a kind of parameters
_MEDIAN = 0.455  # of the square of a standard normal variable
_NODES = 60  # of the Gauss-Hermite rule: variances of all smooth activations to 1e-3, of relu to 1e-2
# Variance of pre-activations under the broad prior. With 1, shrinkage shows in the standard errors; with the variances
# of the network found, weights of softplus and sigmoid units shrink without end while their outgoing weights grow.
_BROAD = 4.0


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

    @classmethod
    def broad(cls, architecture, n_inputs, noise):
        """A prior that the data need not agree with: pre-activations of order one, whatever network was found.

        The variances of a layer's weights add up to 4 in what its units read if that has unit variance in every input,
        and so do those of the shifts. Targets and inputs have unit variance.

        Parameters
        ----------
        architecture : Architecture
        n_inputs : int
        noise : float
            Variance of the noise in an answer.

        Returns
        -------
        Prior
        """
        fan_in, output = (n_inputs, *architecture.widths[:-1]), _output_variance(architecture.activation)
        unit = (1.0, *[output] * (len(fan_in) - 1))
        weights = [max(_BROAD / (a * u), _LEAST) for a, u in zip(fan_in, unit, strict=True)]
        return cls(tuple(weights), (_BROAD,) * len(fan_in), noise)

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
        return self.noise / self.variances(shapes)

    def variances(self, shapes):
        """Of all parameters.

        Parameters
        ----------
        shapes : sequence of (int, int)
            Of the layers' weights.

        Returns
        -------
        ndarray of shape (P,)
            Infinite for the shifts of the outputs.
        """
        parts = []
        for layer, (a, c) in enumerate(shapes):
            shift = np.inf if layer == len(shapes) - 1 else self.shifts[layer]
            parts += [np.full(a * c, self.weights[layer]), np.full(c, shift)]
        return np.concatenate(parts)


def _output_variance(activation):
    """Of a hidden unit whose pre-activation is a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    values, weights = get_activation(activation)(nodes), weights / weights.sum()
    return max(float(weights @ values**2 - (weights @ values) ** 2), _LEAST)


class PenalisedNetworkFits(BatchedNetworkFits):
    """``sum_n w_n ||f(u_n; theta) - y_n||^2 + noise sum_k (theta_k - center_k)^2 / variance_k`` for B networks.

    Parameters
    ----------
    architecture : Architecture
    rows : Rows
    prior : Prior
    center : ndarray of shape (P,), default=None
        The prior's mean; None is 0.

    Notes
    -----
    The minimum is the most likely network where parameters are Gaussian with the prior's variances.
    """

    def __init__(self, architecture, rows, prior, center=None):
        super().__init__(architecture, rows)
        self.center = np.zeros(self.n_parameters) if center is None else center
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
        return super().cost(x) + (x - self.center) ** 2 @ self.penalty

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
        return matrix + np.diag(self.penalty), gradient + (x - self.center) * self.penalty
