"""Random tanh and ReLU networks, and changed and unchanged versions of them for audits."""

from __future__ import annotations

import numpy as np
import torch

from skident.network import FeedforwardNetwork


def random_network(seed):
    """One to three hidden layers of tanh or ReLU units as wide as each other, about 100 to 25 000 parameters."""
    rng = np.random.RandomState(seed)
    activation, depth, wanted = ("tanh", "relu")[seed % 2], 1 + rng.randint(3), 10 ** rng.uniform(2, 4.4)
    D, m_L, width = rng.randint(3, 60), rng.randint(1, 6), 1
    sizes = [D, m_L]
    while sum((n + 1) * m for n, m in zip(sizes, sizes[1:])) < wanted or len(sizes) == 2:
        width += 1
        sizes = [D, *[width] * depth, m_L]
    gain = 2.0 if activation == "relu" else 1.0
    weights = [rng.standard_normal((n, m)) * np.sqrt(gain / n) for n, m in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation), rng


def _weights(network):
    return [np.array(W) for W in network.weights]


def one_weight(network, rng):
    """A weight drawn evenly, changed by a millionth."""
    weights = _weights(network)
    k = rng.randint(sum(W.size for W in weights))
    for layer, W in enumerate(weights):
        if k < W.size:
            row, unit = (int(i) for i in np.unravel_index(k, W.shape))
            W[row, unit] *= 1 + 1e-6
            return network.with_parameters(weights, network.biases), {(layer, row, unit)}
        k -= W.size


def rounded_weights(network, rng):
    """One weight in a hundred rounded to half precision."""
    weights, changed = _weights(network), set()
    for layer, W in enumerate(weights):
        for row, unit in zip(*np.nonzero(rng.uniform(size=W.shape) < 0.01)):
            W[row, unit] = np.float16(W[row, unit])
            changed.add((layer, int(row), int(unit)))
    if not changed:
        return one_weight(network, rng)
    return network.with_parameters(weights, network.biases), changed


def removed_unit(network, rng):
    """A hidden unit whose outgoing weights are 0."""
    weights, layer = _weights(network), rng.randint(network.n_layers - 1)
    unit = rng.randint(network.layer_widths[layer])
    weights[layer + 1][unit] = 0.0
    return network.with_parameters(weights, network.biases), {(layer, None, unit)}


def as_it_is(network, rng):
    """The network itself."""
    return network, set()


def in_another_order(network, rng):
    """Units permuted, with other signs or scales."""
    weights, biases = _weights(network), [np.array(b) for b in network.biases]
    for k in range(network.n_layers - 1):
        order, m = rng.permutation(network.layer_widths[k]), network.layer_widths[k]
        s = rng.choice([-1.0, 1.0], m) if network.activation == "tanh" else np.exp(rng.standard_normal(m))
        weights[k], biases[k] = weights[k][:, order] * s, biases[k][order] * s
        weights[k + 1] = weights[k + 1][order] / s[:, None]
    return network.with_parameters(weights, biases), set()


def single_precision(network, rng):
    """A torch module in single precision."""
    module = network.to_torch(dtype=torch.float32)

    def outputs(X):
        with torch.no_grad():
            return module(torch.as_tensor(X, dtype=torch.float32)).numpy()

    return outputs, set()
