"""By how much two evaluations of the same network may differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Arithmetic", "rounding_of_answers"]

_DOUBLE, _SINGLE = 2.0**-53, 2.0**-24
_OF_ACTIVATION = 4.0  # roundings that an activation makes of its value and of what it is given
_SIDES = 8.0  # standard deviations of a pre-activation within which its slope is looked for


@dataclass(frozen=True)
class Arithmetic:
    """How a black box computes and answers.

    Attributes
    ----------
    single : bool
        Whether in single precision, weights and inputs rounded to it too.
    step : float
        Of the decimals to which answers are rounded; 0 where they are not.
    noise : ndarray of shape (m_L,)
        Standard deviation of other errors.
    """

    single: bool
    step: float
    noise: np.ndarray


def rounding_of_answers(network, X, single):
    """Standard deviation of what rounding leaves in the answers of a network, whatever the order of its sums.

    Every rounding counts as an independent error of one unit in the last place of what is rounded: partial sums of n
    terms t are taken as large as ``|t|_2`` and the result, n times; an activation makes four of its value.
    Errors pass through a layer by its squared weights and the largest slope of the activation nearby.

    Parameters
    ----------
    network : FeedforwardNetwork
    X : ndarray of shape (n, D)
    single : bool
        Whether in single precision; then weights, shifts and inputs are rounded as well.

    Returns
    -------
    ndarray of shape (n, m_L)

    Notes
    -----
    O(n n_parameters) operations, a few times an evaluation.
    """
    unit = _SINGLE if single else _DOUBLE
    H, variance = X, (unit * X) ** 2 if single else np.zeros_like(X)
    for W, b, g in zip(network.weights, network.biases, network.activations, strict=True):
        Z, squares = H @ W + b, W**2
        terms = H**2 @ squares
        own = unit**2 * (len(W) * (terms + Z**2) + b**2)
        spread = np.sqrt(variance @ squares + own)
        slope = np.max([np.abs(g.jet(Z + side * _SIDES * spread, 1)[1]) for side in (-1.0, 0.0, 1.0)], axis=0)
        H, slope_here = g.jet(Z, 1)
        of_value = _OF_ACTIVATION * unit * (np.abs(H) + np.abs(Z * slope_here)) if g.name != "identity" else 0.0
        variance = (slope * spread) ** 2 + of_value**2
    return np.sqrt(variance + (unit * H) ** 2)
