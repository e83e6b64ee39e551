"""Affine maps before and after a network: center and scale inputs and outputs."""

import numpy as np

from skident.linalg import column_units


def center_outputs(network):
    """The network less the mean of its outputs: the same softmax, with zero mean over the outputs.

    The softmax of f(x) determines f(x) only up to a function common to all outputs. Among all networks with the same
    hidden layers and the same probabilities, this one has last weights and biases with zero mean over the outputs.

    Parameters
    ----------
    network : FeedforwardNetwork
        With linear output. A single output, a log-odds, is not changed.

    Returns
    -------
    FeedforwardNetwork

    Raises
    ------
    ValueError
        If the output is not linear.

    Examples
    --------
    >>> from skident.network import FeedforwardNetwork, center_outputs
    >>> network = FeedforwardNetwork([[[1.0]], [[3.0, 1.0]]], [[0.0], [0.0, 2.0]])
    >>> print(center_outputs(network).weights[1])
    [[ 1. -1.]]
    """
    if network.output_activation != "identity":
        raise ValueError(f"center_outputs needs a linear output, got output_activation={network.output_activation!r}.")
    if network.n_outputs == 1:
        return network
    W, b = network.weights[-1], network.biases[-1]
    weights = [*network.weights[:-1], W - W.mean(axis=1, keepdims=True)]
    return network.with_parameters(weights, [*network.biases[:-1], b - b.mean()])


def change_inputs(network, center, scale):
    """The same function of ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    network : FeedforwardNetwork
        A function of x.
    center, scale : ndarray of shape (D,)

    Returns
    -------
    FeedforwardNetwork
        First layer ``scale * W_1`` and ``b_1 + W_1^T center``; ``-center / scale`` and ``1 / scale`` undo it.
    """
    W, b = network.weights[0], network.biases[0]
    weights = [scale[:, None] * W, *network.weights[1:]]
    return network.with_parameters(weights, [b + center @ W, *network.biases[1:]])


def output_scaling(Y, output_activation):
    """Center and scale of every output, which standardize linear outputs.

    Parameters
    ----------
    Y : ndarray of shape (n, m_L)
    output_activation : str

    Returns
    -------
    center, scale : ndarray of shape (m_L,)
        Mean and standard deviation (1 if it is 0) of linear outputs; 0 and 1 of others.
    """
    if output_activation != "identity":
        return np.zeros(Y.shape[1]), np.ones(Y.shape[1])
    return column_units(Y)


def change_outputs(network, center, scale):
    """The network ``center + scale * f(x)`` of a network f with linear or clipped output.

    Parameters
    ----------
    network : FeedforwardNetwork
        f. The bounds of a clipped output change too; every entry of `scale` must be positive then.
    center, scale : ndarray of shape (m_L,)
        From `output_scaling`; ``-center / scale`` and ``1 / scale`` undo it.

    Returns
    -------
    FeedforwardNetwork
        Last layer ``W_L * scale`` and ``b_L * scale + center``.
    """
    weights = [*network.weights[:-1], network.weights[-1] * scale]
    biases = [*network.biases[:-1], network.biases[-1] * scale + center]
    changed = network.without_clip().with_parameters(weights, biases)
    if network.output_range is None:
        return changed
    return changed.with_clip(*(center + scale * bound for bound in network.output_range))
