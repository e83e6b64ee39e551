"""Networks with two hidden layers, and what is known of their first one."""

import numpy as np
import pytest

from skident.identification.second_layer.downstream import Downstream
from skident.network import FeedforwardNetwork


def planted(sizes, seed=0, scale=1.5, bias_scale=0.5, activation="tanh"):
    """Weights of deviation `scale` over the root of the inputs, biases of deviation `bias_scale`, linear output."""
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [bias_scale * rng.standard_normal(b) for _, b in pairs], activation)


def downstream(network, seed=0, known_corrections=False):
    """The network downstream of its true first layer, and the bias corrections, known or not."""
    rng = np.random.RandomState(seed)
    corrections = 0.3 * rng.standard_normal(network.layer_widths[0])
    center_outputs = network.activations[0](corrections) if known_corrections else None
    first = network.weights[0], network.biases[0] - corrections
    return Downstream(network, *first, network.activation, center_outputs, network.n_outputs, rng), corrections


@pytest.fixture
def make_planted():
    return planted


@pytest.fixture
def make_downstream():
    return downstream
