"""Errors of a recovered network's parameters, after alignment with the true network."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork

__all__ = ["parameter_error", "bias_error"]


def _aligned(true_network, network):
    """`network` aligned to `true_network`; `align_to` refuses another architecture."""
    for name, value in (("true_network", true_network), ("network", network)):
        if not isinstance(value, FeedforwardNetwork):
            raise TypeError(
                f"{name} must be a FeedforwardNetwork, got {type(value).__name__}; try FeedforwardNetwork.from_sklearn "
                "or FeedforwardNetwork.from_torch."
            )
    return network.align_to(true_network)


def bias_error(true_network, network):
    """Relative squared error of the biases, layer by layer.

    The paper's E_theta: ``||tau_found - tau||^2 / ||tau||^2`` for every layer, after ``network.align_to(true_network)``
    has resolved the symmetries. A layer whose true biases are all zero gets ``||tau_found||^2``.

    Parameters
    ----------
    true_network : FeedforwardNetwork
        The true network.
    network : FeedforwardNetwork
        The recovered network, of the same layer sizes and activations.

    Returns
    -------
    ndarray of shape (L,)
        One error per layer, first layer first.

    Raises
    ------
    TypeError
        If one of the two is not a FeedforwardNetwork.
    ValueError
        If their layer sizes or activations differ.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.3.

    Examples
    --------
    >>> from skident.datasets import make_network
    >>> from skident.metrics import bias_error
    >>> from skident.network import FeedforwardNetwork
    >>> true_network = make_network((5, 4, 2), random_state=0)
    >>> network = FeedforwardNetwork(
    ...     true_network.weights, [1.1 * b for b in true_network.biases], "tanh", "tanh"
    ... )
    >>> print(round(float(bias_error(true_network, network).max()), 6))
    0.01
    """
    aligned = _aligned(true_network, network)
    errors = []
    for true_biases, biases in zip(true_network.biases, aligned.biases):
        squared_norm = np.sum(np.square(true_biases))
        errors.append(np.sum(np.square(biases - true_biases)) / (squared_norm if squared_norm > 0 else 1.0))
    return np.array(errors)


def parameter_error(true_network, network):
    """Largest relative error over all weight matrices and bias vectors.

    After ``network.align_to(true_network)`` every array has the error ``max|found - true| / max|true|``; the result is
    the largest of them. An array whose true entries are all zero counts with ``max|found|``.

    Parameters
    ----------
    true_network : FeedforwardNetwork
        The true network.
    network : FeedforwardNetwork
        The recovered network, of the same layer sizes and activations.

    Returns
    -------
    float
        The largest error; 0 if the networks are equal up to their symmetries.

    Raises
    ------
    TypeError
        If one of the two is not a FeedforwardNetwork.
    ValueError
        If their layer sizes or activations differ.

    Examples
    --------
    >>> from skident.datasets import make_network
    >>> from skident.metrics import parameter_error
    >>> from skident.network import FeedforwardNetwork
    >>> true_network = make_network((5, 4, 2), random_state=0)
    >>> network = FeedforwardNetwork(
    ...     [1.01 * W for W in true_network.weights], true_network.biases, "tanh", "tanh"
    ... )
    >>> print(round(parameter_error(true_network, network), 6))
    0.01
    """
    aligned = _aligned(true_network, network)
    worst = 0.0
    pairs = (*zip(true_network.weights, aligned.weights), *zip(true_network.biases, aligned.biases))
    for true_array, array in pairs:
        scale = np.abs(true_array).max()
        worst = max(worst, float(np.abs(array - true_array).max() / (scale if scale > 0 else 1.0)))
    return worst
