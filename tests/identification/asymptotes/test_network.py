import numpy as np
import pytest

from skident.identification.asymptotes.network import find_asymptotic_network
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified, Oracle

ACTIVATIONS = ("softplus", "gelu", "silu", "elu")


def random_network(D, m, n_outputs, activation, rng):
    weights = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, n_outputs))]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(m), rng.standard_normal(n_outputs)], activation)


def found_in(box, D, activation, rng, max_units=40):
    return find_asymptotic_network(Oracle(box, D), get_activation(activation), max_units=max_units, rng=rng)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(6, 5, 3), (5, 25, 1), (20, 12, 2)], ids=str)
def test_units_shifts_and_signs(activation, sizes, rng):
    """Also of more units than linear equations for their signs, (5, 25, 1)."""
    network = random_network(*sizes, activation, rng)
    found = found_in(lambda X: network(X), sizes[0], activation, rng)
    assert found.layer_widths == network.layer_widths
    X = rng.standard_normal((200, sizes[0]))
    np.testing.assert_allclose(found(X), network(X), atol=1e-3 * network(X).std())
    assert parameter_error(network, found) < 1e-3


@pytest.mark.parametrize("size", [1e-3, 1e2])
def test_scales_of_the_weights(size, rng):
    """Bends that are wide or narrow; those of small weights are single farther out."""
    network = random_network(6, 5, 2, "silu", rng)
    network = network.with_parameters([size * network.weights[0], network.weights[1]], network.biases)
    found = found_in(lambda X: network(X), 6, "silu", rng)
    X = rng.standard_normal((100, 6)) / size
    np.testing.assert_allclose(found(X), network(X), atol=1e-3 * network(X).std())


REFUSED = {
    "linear": (lambda network, X: X[:, :2], "no unit bends along a line"),
    "linear part": (lambda network, X: network(X) + X[:, :2], "units were detected, but 0 choices of their signs"),
    "saturating": (lambda network, X: np.tanh(network(X)), "no single unit|do not grow linearly|no unit bends"),
    "cut off": (
        lambda network, X: network(X) + np.exp(-np.sum(X**2, axis=1, keepdims=True) / 10.0),
        "units were detected far out, but they do not explain the outputs near the center",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, rng):
    box, message = REFUSED[name]
    network = random_network(6, 5, 2, "gelu", rng)
    with pytest.raises(NotIdentified, match=message):
        found_in(lambda X: box(network, X), 6, "gelu", rng)
