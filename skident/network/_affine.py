"""Affine maps before and after a network: fold scalers in, take them out, center and scale outputs."""

from __future__ import annotations

import numpy as np

from skident.linalg import column_units

from ._transformers import affine_map, solve_first_layer

__all__ = [
    "affine_map",
    "center_outputs",
    "change_inputs",
    "change_outputs",
    "fold_inputs",
    "output_scaling",
    "unfold_inputs",
]


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


def fold_inputs(network, transformer):
    """The network after an affine transformer, ``network(transformer.transform(X))``, as one network.

    Parameters
    ----------
    network : FeedforwardNetwork
        A function of transformed inputs.
    transformer : fitted transformer
        Affine: StandardScaler, MinMaxScaler (without ``clip``), PCA, SelectKBest, a pipeline of such, ...

    Returns
    -------
    FeedforwardNetwork
        A function of the original inputs, with first layer ``A W_1`` and ``b_1 + W_1^T c`` for ``A^T x + c``.

    Raises
    ------
    ValueError
        If the transformer is not affine, or has another number of outputs than the network has inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skident.network import FeedforwardNetwork, fold_inputs
    >>> scaler = StandardScaler().fit([[0.0], [4.0]])
    >>> print(
    ...     fold_inputs(FeedforwardNetwork([[[6.0]], [[1.0]]], [[1.0], [0.0]]), scaler).weights[
    ...         0
    ...     ]
    ... )
    [[3.]]
    """
    A, c = affine_map(transformer)
    W, b = network.weights[0], network.biases[0]
    if A.shape[1] != len(W):
        raise ValueError(f"the transformer gives {A.shape[1]} features, but the network has {len(W)} inputs.")
    return _with_first_layer(network, A @ W, b + c @ W)


def unfold_inputs(network, transformer):
    """The network f with ``f(transformer.transform(X)) = network(X)``, for an affine transformer.

    Parameters
    ----------
    network : FeedforwardNetwork
        A function of the original inputs, such as `NetworkIdentifier.network_` of a scaled pipeline.
    transformer : fitted transformer
        Affine, such as ``pipeline[:-1]``.

    Returns
    -------
    FeedforwardNetwork
        A function of transformed inputs, to compare with the pipeline's last step.

    Raises
    ------
    ValueError
        If the transformer is not affine, its outputs are linearly dependent (f is then not determined), or the network
        depends on inputs that the transformer drops.

    Notes
    -----
    ``A W = W_1`` by least squares, rows and columns of A scaled to norm 1. ``O(D k^2)`` for k features.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skident.network import FeedforwardNetwork, unfold_inputs
    >>> scaler = StandardScaler().fit([[0.0], [4.0]])
    >>> print(
    ...     unfold_inputs(
    ...         FeedforwardNetwork([[[3.0]], [[1.0]]], [[1.0], [0.0]]), scaler
    ...     ).weights[0]
    ... )
    [[6.]]
    """
    A, c = affine_map(transformer)
    if len(A) != network.n_inputs:
        raise ValueError(f"the transformer takes {len(A)} features, but the network has {network.n_inputs} inputs.")
    W = solve_first_layer(A, network.weights[0])
    return _with_first_layer(network, W, network.biases[0] - c @ W)


def _with_first_layer(network, W, b):
    weights, biases = [W, *network.weights[1:]], [b, *network.biases[1:]]
    return network.with_parameters(weights, biases)


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
