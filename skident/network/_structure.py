"""Structure in the weights of a network: a convolution, zeros, and networks side by side."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from ._convolution import Convolution, find_convolution

_SPARSE = 0.5  # share of zeros from which a layer is called sparse in the text


@dataclass(frozen=True)
class NetworkStructure:
    """What the weights of a network have in common, see `FeedforwardNetwork.structure`.

    Attributes
    ----------
    convolution : Convolution or None
        The convolution that the first layer is, with its kernels.
    sparsity : tuple of float
        Share of zero weights per layer.
    blocks : tuple of (tuple of ndarray)
        Networks side by side: units per hidden layer of each. One if all hidden layers are connected, or if there is
        one hidden layer, whose units are no networks of their own.
    network : FeedforwardNetwork
        The network with shared kernels and with exact zeros.

    Examples
    --------
    >>> from skident.network import FeedforwardNetwork
    >>> weights = [[[1.0, 0.0]], [[2.0, 0.0], [0.0, 3.0]], [[1.0], [1.0]]]
    >>> print(
    ...     FeedforwardNetwork(weights, [[0.0, 1.0], [0.0, 0.0], [0.0]]).structure().n_networks
    ... )
    2
    """

    convolution: Convolution | None
    sparsity: tuple[float, ...]
    blocks: tuple
    network: object

    @property
    def n_networks(self):
        """Number of networks whose mean or sum this network may be."""
        return len(self.blocks)

    def __str__(self):
        lines = [] if self.convolution is None else [f"layer 1: convolution, {self.convolution}"]
        for layer, share in enumerate(self.sparsity, 1):
            if share >= _SPARSE and (layer > 1 or self.convolution is None):
                lines.append(f"layer {layer}: {100 * share:.0f} % of the weights are zero")
        if self.n_networks > 1:
            widths = ", ".join("-".join(str(len(units)) for units in block) for block in self.blocks)
            lines.append(f"{self.n_networks} networks side by side, an average or a sum: {widths}")
        return "\n".join(lines) or "dense"


def structure_of(network, input_shape=None, tol=1e-6):
    """The `NetworkStructure` of a network."""
    zeros = [np.abs(W) <= tol * np.abs(W).max(axis=0) for W in network.weights]
    weights = [np.where(zero, 0.0, W) for zero, W in zip(zeros, network.weights, strict=True)]
    biases, found = list(network.biases), None
    if network.n_layers > 1:
        found = find_convolution(weights[0], biases[0], weights[1], input_shape, tol)
    if found is not None:
        weights[0], biases[0] = _with_kernels(weights[0], biases[0], *found)
    sparsity = tuple(float(zero.mean()) for zero in zeros)
    shared = network.with_parameters(weights, biases)
    return NetworkStructure(found[0] if found else None, sparsity, _blocks(weights), shared)


def _with_kernels(W, b, convolution, factors):
    """First layer (D, m) and biases with the shared kernels in the place of the weights of their units."""
    W, b = W.copy(), b.copy()
    channels, height, width = convolution.input_shape
    for k, row, column in np.argwhere(convolution.units >= 0):
        unit = convolution.units[k, row, column]
        image = np.zeros((channels, height, width))
        rows, columns = (
            place * step - pad + np.arange(size)
            for place, step, pad, size in zip(
                (row, column), convolution.stride, convolution.padding, convolution.kernels.shape[2:], strict=True
            )
        )
        r, c = (np.flatnonzero((at >= 0) & (at < n)) for at, n in ((rows, height), (columns, width)))
        image[np.ix_(range(channels), rows[r], columns[c])] = convolution.kernels[k][np.ix_(range(channels), r, c)]
        W[:, unit] = factors[unit] * image.ravel()
        b[unit] = factors[unit] * convolution.biases[k]
    return W, b


def _blocks(weights):
    """Connected components of the hidden units, as arrays of units per hidden layer."""
    widths = [W.shape[1] for W in weights[:-1]]
    if len(widths) < 2:
        return (tuple(np.arange(m) for m in widths),)
    starts = np.cumsum([0, *widths])
    joined = np.zeros((starts[-1], starts[-1]), dtype=bool)
    for W, first, second, end in zip(weights[1:-1], starts, starts[1:], starts[2:]):
        joined[first:second, second:end] = W != 0.0
    n_blocks, labels = connected_components(joined, directed=False)
    layers = np.split(labels, starts[1:-1])
    return tuple(tuple(np.flatnonzero(layer == block) for layer in layers) for block in range(n_blocks))
