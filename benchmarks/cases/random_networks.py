"""Networks with random weights of the usual variance."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork


def random_network(activation, widths, seed):
    """A network with random weights of the usual size and biases of 0.3 standard deviations."""
    rng, gain = np.random.default_rng(seed), np.sqrt(2.0) if "relu" in activation else 1.0
    weights = [gain * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in zip(widths, widths[1:], strict=False)]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in widths[1:]], activation)


def random_relu_network(sizes, seed, activation="relu"):
    """Network with weights of variance 1 / D in the first layer and 2 / m behind it, biases of deviation 0.3."""
    rng, weights, biases = np.random.default_rng(seed), [], []
    for layer, (n, m) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        last = layer == len(sizes) - 2
        weights.append(rng.standard_normal((n, m)) / np.sqrt(n if layer == 0 or last else n / 2.0))
        biases.append(np.full(m, 0.1) if last else 0.3 * rng.standard_normal(m))
    return FeedforwardNetwork(weights, biases, activation)
