"""Networks with two hidden layers, and the cubes of their first one."""

import numpy as np
import pytest

from skident.identification.smooth.cube import Cube
from skident.network import FeedforwardNetwork


def planted(sizes, seed=0, scale=1.5, bias_scale=0.5, activation="tanh"):
    """Weights of deviation `scale` over the root of the inputs, biases of deviation `bias_scale`, linear output."""
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [bias_scale * rng.standard_normal(b) for _, b in pairs], activation)


def cube(network, seed=0, factors=0.0, shifts=0.3):
    """The cube of the network's first layer; norms are off by relative deviations `factors`, biases by `shifts`."""
    rng, m = np.random.RandomState(seed), network.layer_widths[0]
    exact = Cube(network, network.weights[0], network.biases[0], network.activations[0], network.n_outputs, rng)
    return exact.rescaled(np.exp(factors * rng.standard_normal(m)), shifts * rng.standard_normal(m))


@pytest.fixture
def make_planted():
    return planted


@pytest.fixture
def make_cube():
    return cube
