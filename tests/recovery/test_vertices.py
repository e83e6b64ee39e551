import numpy as np
import pytest

from skident.datasets import make_network
from skident.network import get_activation
from skident.oracle import Oracle
from skident.recovery import FirstLayer, ask_vertices, find_first_layer, fit_from_random_starts, network_from_vertices


def known_first_layer(network):
    """The first layer as the saturation search would hand it on."""
    W, b = network.weights[0], network.biases[0]
    return FirstLayer(W, b, np.zeros((W.shape[1], W.shape[0])), 1e5, 1, 0)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(7, 5, 2), (4, 9, 2)])
def test_answers_at_vertices(sizes, activation):
    """Units at their limits, more units than inputs or fewer."""
    network = make_network(sizes, activation=activation, output_activation="identity", random_state=0)
    g = get_activation(activation)
    oracle = Oracle(network, sizes[0])
    H, Y = ask_vertices(oracle, known_first_layer(network), g, 40, np.random.RandomState(0))
    assert H.shape[1] == sizes[1] and set(np.unique(H)) == set(g.limits)
    np.testing.assert_allclose(Y, H @ network.weights[1] + network.biases[1], atol=1e-12)
    assert oracle.n_queries == len(H) <= 40


def test_a_network_through_answers(rng):
    network = make_network((6, 4, 3), random_state=0)
    H = rng.choice([-1.0, 1.0], (200, 6))
    starts = []
    found, misfit = fit_from_random_starts(
        H, network(H), (4, 3), "tanh", "tanh", np.random.RandomState(0), callback=starts.append
    )
    assert misfit < 1e-10 and starts == list(range(len(starts)))
    np.testing.assert_allclose(found(H), network(H), atol=1e-8)


def test_answers_of_no_network(rng):
    H = rng.choice([-1.0, 1.0], (100, 6))
    starts = []
    _, misfit = fit_from_random_starts(
        H, rng.standard_normal((100, 2)), (2, 2), "tanh", "tanh", np.random.RandomState(0), n_starts=3,
        callback=starts.append,
    )
    assert misfit > 0.5 and starts == [0, 1, 2]


@pytest.mark.parametrize(("sizes", "output"), [((8, 6, 4, 2), "tanh"), ((6, 8, 3), "identity")])
def test_the_rest_of_a_network(sizes, output, rng):
    """Exact wherever the first layer is saturated."""
    network = make_network(sizes, output_activation=output, random_state=0)
    oracle = Oracle(network, sizes[0])
    first = find_first_layer(oracle, n_units=sizes[1], rng=np.random.RandomState(0))
    found, misfit = network_from_vertices(oracle, first, sizes[1:], "tanh", output, np.random.RandomState(0))
    assert misfit < 1e-9
    far = 1e6 * rng.standard_normal((200, sizes[0]))
    far = far[np.abs(far @ network.weights[0] + network.biases[0]).min(axis=1) > 1e3]
    np.testing.assert_allclose(found(far), network(far), atol=1e-7)
