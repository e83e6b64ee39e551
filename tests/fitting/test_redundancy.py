import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.redundancy import redundant_units
from skident.network import FeedforwardNetwork


def with_layer(network, layer, change):
    """The network with one hidden layer's (incoming, shifts, outgoing) replaced."""
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    weights[layer], biases[layer], weights[layer + 1] = change(weights[layer], biases[layer], weights[layer + 1])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


CHANGES = {
    "none": (lambda W, b, V: (W, b, V), 0),
    "a double": (lambda W, b, V: (np.c_[W, W[:, 0]], np.r_[b, b[0]], np.r_[V, V[:1]]), 1),
    "a double turned round": (lambda W, b, V: (np.c_[W, -W[:, 0]], np.r_[b, -b[0]], np.r_[V, V[:1]]), 1),
    "no outgoing weights": (lambda W, b, V: (np.c_[W, W[:, 0] + W[:, 1]], np.r_[b, 1.0], np.r_[V, 0 * V[:1]]), 1),
    "no incoming weights": (lambda W, b, V: (np.c_[W, 0 * W[:, 0]], np.r_[b, 1.0], np.r_[V, V[:1]]), 1),
    "parallel, another shift": (lambda W, b, V: (np.c_[W, W[:, 0]], np.r_[b, b[0] + 0.1], np.r_[V, V[:1]]), 0),
}


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", CHANGES)
def test_counted_in_its_layer(name, layer):
    change, n_redundant = CHANGES[name]
    network = with_layer(make_network((6, 5, 4, 2), shift_scale=0.3, random_state=0), layer, change)
    expected = [0, 0]
    expected[layer] = n_redundant
    assert redundant_units(network) == expected


def test_one_layer_has_none():
    assert redundant_units(make_network((4, 2), random_state=0)) == []
