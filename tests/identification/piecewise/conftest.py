"""Planted ReLU networks, what is known of their first layers, and probes of their outputs."""

import numpy as np
import pytest

from skident.identification.piecewise.kernel.output_error import DeepProbe, measure_rounding
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


class Planted:
    """A network of given widths (D, m_1, ..., m_L), and a black box with its outputs."""

    def __init__(self, widths, seed):
        rng = np.random.RandomState(seed)
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        scales = [1.0, *np.full(len(pairs) - 2, 2.0), 1.0]
        weights = [np.sqrt(s / a) * rng.standard_normal((a, b)) for s, (a, b) in zip(scales, pairs, strict=True)]
        self.rng, self.network = rng, None
        self.set(weights, [0.3 * rng.standard_normal(b) for b in widths[1:]])

    def set(self, weights, biases):
        self.network = FeedforwardNetwork(weights, biases, "relu")
        self.oracle = Oracle(self.network, self.network.n_inputs)
        probe = self.oracle(self.rng.standard_normal((200, self.network.n_inputs)))
        self.oracle.standardize_outputs(probe)
        self.spread = probe.std(axis=0) / self.oracle.output_scale
        return self

    def probe(self):
        return DeepProbe(self.oracle, measure_rounding(self.oracle, self.rng), self.spread)

    def layers(self, n):
        """The first n layers."""
        return list(zip(self.network.weights[:n], self.network.biases[:n], strict=True))

    def unsigned(self, n):
        """Weights and biases of layer n with units of other signs and norms; and what these are."""
        W, b = self.network.weights[n - 1], self.network.biases[n - 1]
        factors = self.rng.choice([-1.0, 1.0], W.shape[1]) * self.rng.uniform(0.5, 2.0, W.shape[1])
        return (W * factors, b * factors), factors

    def pre_activations(self, X):
        """Of all hidden layers."""
        found = []
        for W, b in self.layers(len(self.network.weights) - 1):
            found.append(X @ W + b)
            X = np.maximum(found[-1], 0.0)
        return found

    def critical_point(self, layer, unit, cut=0.0):
        """A point at which a unit's pre-activation is 0, and its gradient there, by bisection on a random line."""
        while True:
            ends = self.rng.standard_normal((2, self.network.n_inputs))
            z = [self.pre_activations(x[None])[layer - 1][0, unit] for x in ends]
            if z[0] * z[1] < 0:
                break
        for _ in range(60):
            middle = ends.mean(axis=0)
            same = self.pre_activations(middle[None])[layer - 1][0, unit] * z[0] > 0
            ends[0 if same else 1] = middle
        x, h = ends[0], 1e-6
        steps = h * np.eye(len(x))
        z = [self.pre_activations(x + s * steps)[layer - 1][:, unit] for s in (1.0, -1.0)]
        return x, (z[0] - z[1]) / (2.0 * h)


@pytest.fixture
def planted():
    return Planted
