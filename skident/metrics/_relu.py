"""Errors of the units of a ReLU network, matched one to one with the true ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from skident.network import FeedforwardNetwork

__all__ = ["UnitMatchingError", "unit_matching_error"]


class UnitMatchingError(NamedTuple):
    """Largest errors over matched units, and the matching.

    Attributes
    ----------
    weights : float
        Of ``||s_i w_i - w_true||`` for unit vectors, s_i the signs.
    biases : float
        Of ``|s_i b_i - b_true|``, for weights of norm 1.
    output_weights : float
        Of ``|a_i - a_true|``, for weights of norm 1.
    permutation : ndarray of shape (m,)
        ``permutation[j]`` is the unit matched with the true unit j.
    signs : ndarray of shape (m,)
        1 or -1, the factor of (w, b) of that unit.
    """

    weights: float
    biases: float
    output_weights: float
    permutation: np.ndarray
    signs: np.ndarray


def unit_matching_error(true_network, network):
    """Errors of directions, biases and output weights of ReLU units, matched one to one up to the sign of (w, b).

    Norms of the weights are first moved into the output weights, as ``relu(c t) = c relu(t)`` allows. The assignment
    minimizes the sum of squared distances of the directions; the sign of a pair is that of their product.

    Parameters
    ----------
    true_network, network : FeedforwardNetwork or tuple of (W, b, a)
        The true and the recovered one, with one hidden layer and one output; W (d, m), b and a (m,).

    Returns
    -------
    UnitMatchingError

    Raises
    ------
    ValueError
        If the numbers of inputs or units differ, or one of them is no such network.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.metrics import unit_matching_error
    >>> truth = np.eye(2), np.array([0.5, -1.0]), np.array([1.0, 2.0])
    >>> flipped = 2 * np.eye(2)[:, ::-1], np.array([-2.0, 1.0]), np.array([1.0, 0.5])
    >>> print(unit_matching_error(truth, flipped).output_weights)
    0.0
    """
    W, b, a = _units("network", network)
    V, c, e = _units("true_network", true_network)
    if W.shape != V.shape:
        raise ValueError(
            f"the network has {W.shape[1]} units of {W.shape[0]} inputs, the true one {V.shape[1]} of {V.shape[0]}; "
            "only networks of the same size can be matched unit by unit."
        )
    products = V.T @ W
    # Squared distance of unit vectors up to sign: 2 - 2 |product|.
    _, permutation = linear_sum_assignment(-np.abs(products))
    signs = np.where(np.take_along_axis(products, permutation[:, None], axis=1)[:, 0] < 0, -1.0, 1.0)
    W, b, a = W[:, permutation] * signs, b[permutation] * signs, a[permutation]
    return UnitMatchingError(
        float(np.linalg.norm(W - V, axis=0).max()),
        float(np.abs(b - c).max()),
        float(np.abs(a - e).max()),
        permutation,
        signs,
    )


def _units(name, network):
    """W with unit columns, b, a."""
    if isinstance(network, FeedforwardNetwork):
        if network.n_layers != 2 or network.n_outputs != 1:
            raise ValueError(f"{name} must have one hidden layer and one output, got {network!r}.")
        network = network.weights[0], network.biases[0], network.weights[1][:, 0]
    W, b, a = (np.asarray(x, dtype=np.float64) for x in network)
    if W.ndim != 2 or b.shape != (W.shape[1],) or a.shape != b.shape:
        raise ValueError(f"{name}: W must be (d, m), b and a (m,), got shapes {W.shape}, {b.shape} and {a.shape}.")
    norms = np.linalg.norm(W, axis=0)
    if not np.all(norms > 0):
        raise ValueError(f"{name} has a unit with zero weights, which has no direction.")
    return W / norms, b / norms, a * norms
