"""Hidden layers with additional linear units, for activations that reflect to a line: ``g(z) - g(-z) = k z``.

With softplus, gelu, silu and ReLU (k = 1) a unit of the wrong sign is off by a linear function only. A fit with linear
units recovers the others up to their signs, which are chosen afterwards so that the linear functions cancel.
"""

import numpy as np

from skident.budget.constants import CONSTANT_TOL
from skident.linalg import lapack
from skident.network import Architecture, FeedforwardNetwork, get_activation, partly_linear

_PROBES = np.array([0.3, 1.1, 2.7])  # pre-activations at which the slopes of g(z) - g(-z) are compared


def reflection_slope(activation):
    """The k of ``g(z) - g(-z) = k z``, or 0 if the activation does not reflect to a line."""
    activation = get_activation(activation)
    if activation.symmetry in ("linear", "even"):
        return 0.0
    slopes = (activation(_PROBES) - activation(-_PROBES)) / _PROBES
    return float(slopes[0]) if np.ptp(slopes) < CONSTANT_TOL else 0.0


def with_linear_units(architecture):
    """One hidden layer (m, m_L) with as many linear units more, at its end, as there are outputs: (m + m_L, m_L)."""
    m, p = architecture.widths
    return Architecture((m + p, p), partly_linear(architecture.activation, p), architecture.output_activation)


def choose_signs(weights, biases, activation, output_activation="identity"):
    """Two networks without linear units that approximate one with them (`with_linear_units`).

    The first has the same units, some of them reflected so that the remaining linear part is small: the solution of ``U
    = -k sum_j t_j w_j a_j^T`` rounded to ``t_j`` in {0, 1}. The second has two units more per output, which together
    make the linear part, and is the same function.
    """
    (W, A), (b, c) = weights, biases
    p, k = A.shape[1], reflection_slope(activation)
    linear, offset = W[:, -p:] @ A[-p:], b[-p:] @ A[-p:]
    W, b, A, c = W[:, :-p], b[:-p], A[:-p], c + offset
    designs = np.einsum("im,mp->ipm", W, A).reshape(-1, W.shape[1])
    reflected = np.rint(lapack.lstsq(-k * designs, linear.ravel(), rcond=None)[0]) >= 1.0
    sign = np.where(reflected, -1.0, 1.0)
    same = FeedforwardNetwork([W * sign, A], [b * sign, c + k * (b * reflected) @ A], activation, output_activation)
    pairs = np.concatenate([W, linear, -linear], axis=1), np.concatenate([A, np.eye(p) / k, -np.eye(p) / k])
    more = FeedforwardNetwork(pairs, [np.concatenate([b, np.zeros(2 * p)]), c], activation, output_activation)
    return [same, more]
