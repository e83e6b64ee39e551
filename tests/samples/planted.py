"""Samples of planted networks, for the tests of this room."""

import numpy as np

from skident.samples.sample import Sample


def planted(seed, d, m, n, noise=0.0):
    """A sample of a network of m units and the network's units as rows, biases, output weights."""
    rng = np.random.RandomState(seed)
    U = rng.standard_normal((m, d))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    b, a = rng.uniform(-1, 1, m), rng.choice([-1, 1], m) * rng.uniform(1, 2, m)
    X = rng.standard_normal((n, d))
    y = np.maximum(X @ U.T + b, 0) @ a
    return Sample(X, y + noise * y.std() * rng.standard_normal(n)), U, b, a


def in_z(sample, U, b):
    """The units' directions and biases in the coordinates of the sample."""
    V = np.linalg.solve(sample.whitener, U.T)
    lengths = np.linalg.norm(V, axis=0)
    return (V / lengths).T, (b + U @ sample.center) / lengths
