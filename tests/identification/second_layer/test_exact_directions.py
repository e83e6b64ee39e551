from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.second_layer.exact_directions import exact_directions
from skident.network import get_activation
from skident.oracle import Oracle


def errors(first, network):
    """Norms of the differences between unit vectors, each to the nearest true one up to sign."""
    true = network.weights[0] / np.linalg.norm(network.weights[0], axis=0)
    cosines = true.T @ first.directions
    match = np.argmax(np.abs(cosines), axis=0)
    signs = np.sign(cosines[match, np.arange(cosines.shape[1])])
    return np.linalg.norm(first.directions - signs * true[:, match], axis=0)


def found(sizes, activation, seed):
    options = {"activation": activation, "output_activation": "identity", "random_state": seed}
    network = make_network(sizes, shift_scale=0.5, **options)
    oracle, rng = Oracle(lambda X: network(X), sizes[0]), np.random.RandomState(seed)
    return network, oracle, find_first_layer(oracle, activation=activation, n_units=sizes[1], rng=rng), rng


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(10, 16, 16, 1), (4, 9, 5, 2), (6, 5, 5, 1), (2, 4, 3, 1)])
def test_rounding_is_all_that_is_left(sizes, activation):
    network, oracle, first, rng = found(sizes, activation, 3)
    # As rough as the worst of many.
    noise = 3e-8 * rng.standard_normal(first.weights.shape) * first.norms
    first = replace(first, weights=first.weights + noise)
    n_queries = oracle.n_queries
    exact = exact_directions(oracle, first, get_activation(activation), rng)
    assert errors(first, network).max() > 1e-8
    assert errors(exact, network).max() < (2e-12 if sizes[0] == 2 else 2e-14)
    assert oracle.n_queries - n_queries <= 28 * (sizes[0] + 2) * sizes[1]
    np.testing.assert_allclose(exact.norms, first.norms, rtol=1e-6)


def test_lengths_wrong_by_a_factor_of_five_do_not_matter():
    network, oracle, first, rng = found((8, 12, 6, 1), "tanh", 5)
    stretch = np.exp(rng.uniform(-1.6, 1.6, 12))
    first = replace(first, weights=first.weights * stretch, biases=first.biases * stretch)
    assert errors(exact_directions(oracle, first, get_activation("tanh"), rng), network).max() < 3e-14


def test_one_unit_alone_has_its_whole_hyperplane():
    network, oracle, first, rng = found((5, 1, 1), "tanh", 0)
    assert errors(exact_directions(oracle, first, get_activation("tanh"), rng), network).max() < 3e-14
