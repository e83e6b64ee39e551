"""Networks with two hidden layers, their first one known as the route on patches knows it."""

import numpy as np
import pytest

from skident.identification.second_layer.downstream import Downstream
from skident.network import FeedforwardNetwork


def planted(sizes, seed=0, scale=1.5, shift=0.5, activation="tanh"):
    """Weights of deviation `scale` over the root of the inputs, shifts of deviation `shift`, linear output."""
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [shift * rng.standard_normal(b) for _, b in pairs], activation)


def downstream(network, seed=0, known_shifts=False):
    """The black box downstream its true first layer, whose shifts are known or not."""
    rng = np.random.RandomState(seed)
    moved = 0.3 * rng.standard_normal(network.layer_widths[0])
    theta = network.activations[0](moved) if known_shifts else None
    first = network.weights[0], network.biases[0] - moved
    return Downstream(network, *first, network.activation, theta, network.n_outputs, rng), moved


@pytest.fixture
def make_planted():
    return planted


@pytest.fixture
def make_downstream():
    return downstream
