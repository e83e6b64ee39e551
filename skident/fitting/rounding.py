"""Rounding errors of a network that computes in single precision: their standard deviation at every input."""

import numpy as np

from skident.budget.constants import EPS32, UNIFORM
from skident.network import change_inputs


def rounding_std(network, U, *, center=0.0, scale=1.0, eps=EPS32):
    """Standard deviation (n, m_L) of the rounding errors of a network's outputs at standardized inputs U (n, D).

    The network is of U; the model computes with its own inputs ``center + scale u``, in numbers of spacing `eps` at 1.
    A sum of terms t has independent errors of about ``eps (|t|^2 + |sum t|^2)^(1/2) / sqrt(12)``, which further layers
    propagate; sums of different signs of errors cancel as random ones do.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.fitting.rounding import rounding_std
    >>> from skident.network import FeedforwardNetwork
    >>> network = FeedforwardNetwork(
    ...     [np.ones((2, 1)), np.ones((1, 1))], [np.zeros(1), np.zeros(1)], "relu"
    ... )
    >>> print(rounding_std(network, np.array([[3.0, 4.0], [-3.0, -4.0]])).ravel() > 0)
    [ True False]
    """
    scale = np.broadcast_to(np.asarray(scale, dtype=float), network.n_inputs)
    own = change_inputs(network, -center / scale, 1.0 / scale)
    H, unit = center + scale * U, UNIFORM * eps
    variance = np.zeros_like(H)
    for W, b, activation in zip(own.weights, own.biases, own.activations, strict=True):
        Z = H @ W + b
        variance = variance @ W**2 + unit**2 * (H**2 @ W**2 + b**2 + Z**2)
        H, slope = activation.jet(Z, 1)
        variance = variance * slope**2
    return np.sqrt(variance)
