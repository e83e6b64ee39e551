"""First-layer directions to rounding error."""

from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.smooth.exact_directions import exact_directions
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import Oracle


def direction_errors(first, network):
    """Norms of the differences between unit vectors, each to the nearest true one up to sign."""
    true = network.weights[0] / np.linalg.norm(network.weights[0], axis=0)
    cosines = true.T @ first.directions
    match = np.argmax(np.abs(cosines), axis=0)
    signs = np.sign(cosines[match, np.arange(cosines.shape[1])])
    return np.linalg.norm(first.directions - signs * true[:, match], axis=0)


def recovered(sizes, activation, seed):
    options = {"activation": activation, "output_activation": "identity", "random_state": seed}
    network = make_network(sizes, bias_scale=0.5, **options)
    oracle, rng = Oracle(lambda X: network(X), sizes[0]), np.random.RandomState(seed)
    return network, oracle, find_first_layer(oracle, activation=activation, n_units=sizes[1], rng=rng), rng


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(10, 16, 16, 1), (4, 9, 5, 2), (6, 5, 5, 1), (2, 4, 3, 1)])
def test_directions_are_exact_to_rounding(sizes, activation):
    network, oracle, first, rng = recovered(sizes, activation, 3)
    # As rough as the worst of many.
    noise = 3e-8 * rng.standard_normal(first.weights.shape) * first.norms
    first = replace(first, weights=first.weights + noise)
    n_queries = oracle.n_queries
    exact = exact_directions(oracle, first, get_activation(activation), rng)
    assert direction_errors(first, network).max() > 1e-8
    assert direction_errors(exact, network).max() < (2e-12 if sizes[0] == 2 else 2e-14)
    assert oracle.n_queries - n_queries <= 28 * (sizes[0] + 2) * sizes[1]
    np.testing.assert_allclose(exact.norms, first.norms, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(10, 16, 16, 1), (17, 40, 20, 3)])
def test_directions_from_single_precision_are_exact_to_its_rounding(sizes):
    options = {"activation": "tanh", "output_activation": "identity", "random_state": 3}
    network, rng = make_network(sizes, bias_scale=0.5, **options), np.random.RandomState(3)
    oracle = Oracle(lambda X: network(X).astype(np.float32), sizes[0])
    X = rng.standard_normal((100, sizes[0]))
    oracle.standardize_outputs(network(X), "identity")
    noise = oracle.measure_accuracy(X, oracle(X), rng).noise_std
    first = find_first_layer(oracle, n_units=sizes[1], rng=rng, noise=noise)
    exact = exact_directions(oracle, first, get_activation("tanh"), rng)
    assert np.median(direction_errors(first, network)) > 1e-6
    assert direction_errors(exact, network).max() < 1e-6


def test_norms_wrong_by_a_factor_of_five_do_not_matter():
    network, oracle, first, rng = recovered((8, 12, 6, 1), "tanh", 5)
    stretch = np.exp(rng.uniform(-1.6, 1.6, 12))
    first = replace(first, weights=first.weights * stretch, biases=first.biases * stretch)
    assert direction_errors(exact_directions(oracle, first, get_activation("tanh"), rng), network).max() < 3e-14


def test_a_single_unit():
    network, oracle, first, rng = recovered((5, 1, 1), "tanh", 0)
    assert direction_errors(exact_directions(oracle, first, get_activation("tanh"), rng), network).max() < 3e-14


def target(sizes, steepness, activation, seed=0):
    options = {"activation": activation, "output_activation": "identity", "random_state": seed}
    network = make_network(sizes, bias_scale=0.5, **options)
    weights = [network.weights[0], *(steepness * W for W in network.weights[1:])]
    return FeedforwardNetwork(weights, network.biases, activation, "identity")


def norm_errors(first, network):
    lengths = np.linalg.norm(network.weights[0], axis=0)
    match = np.argmax(np.abs((network.weights[0] / lengths).T @ first.directions), axis=0)
    return np.abs(first.norms / lengths[match] - 1.0)
