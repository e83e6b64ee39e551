"""First-layer directions and weight norms to rounding error."""

from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.second_layer.exact_directions import exact_directions
from skident.identification.second_layer.weight_norms import _centers, centered, erf_norms_and_biases, vote_on_norms
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


@pytest.mark.parametrize(("activation", "steepness"), [("tanh", 1.0), ("tanh", 6.0), ("sigmoid", 12.0)])
@pytest.mark.parametrize("sizes", [(6, 9, 8, 1), (10, 16, 16, 1), (8, 7, 4, 2)])
def test_norms_if_the_profile_misleads(sizes, activation, steepness):
    network = target(sizes, steepness, activation)
    oracle, rng = Oracle(lambda X: network(X), sizes[0]), np.random.RandomState(0)
    first = find_first_layer(oracle, activation=activation, n_units=sizes[1], rng=rng)
    wrong = np.exp(rng.uniform(-1.2, 1.2, sizes[1]))
    first = replace(first, weights=first.weights * wrong, biases=first.biases * wrong)
    vote = vote_on_norms(oracle, first, activation, rng)
    assert vote.support.min() >= 3
    assert norm_errors(vote.first, network).max() < 1e-6
    offsets = [f.biases / f.norms for f in (first, vote.first)]
    np.testing.assert_allclose(offsets[1], offsets[0], rtol=1e-12)


def test_a_unit_without_a_tail_keeps_its_norm_and_has_no_support():
    network = target((6, 5, 2), 1.0, "tanh")
    first = find_first_layer(Oracle(lambda X: network(X), 6), n_units=5, rng=np.random.RandomState(0))
    unit = int(np.argmax(np.abs(network.weights[0].T @ first.directions[:, 0])))
    output = network.weights[1].copy()
    output[unit] *= 1e-14
    faint = FeedforwardNetwork([network.weights[0], output], network.biases, "tanh", "identity")
    vote = vote_on_norms(Oracle(lambda X: faint(X), 6), first, "tanh", np.random.RandomState(0))
    assert vote.support[0] == 1 and vote.support[1:].min() >= 3
    np.testing.assert_allclose(vote.first.weights[:, 0], first.weights[:, 0], rtol=1e-15)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_a_hyperplane_far_off_is_moved_to_the_center_of_its_unit(activation):
    unit, network = 2.0 if activation == "sigmoid" else 1.0, target((6, 9, 8, 1), 3.0, activation)
    oracle, rng = Oracle(lambda X: network(X), 6), np.random.RandomState(0)
    first = find_first_layer(oracle, activation=activation, n_units=9, rng=rng)
    wrong = first.biases + np.where(np.arange(9) < 2, [5.0 * unit], 0.0)
    moved = replace(
        first, biases=wrong, points=first.points - (first.directions * (wrong - first.biases) / first.norms).T
    )
    vote = vote_on_norms(oracle, moved, activation, rng)
    found = centered(vote, activation)
    assert vote.support.min() >= 3 and np.abs(vote.centers[:2]).min() > 3.0 * unit
    cosines = (network.weights[0] / np.linalg.norm(network.weights[0], axis=0)).T @ found.directions
    match = np.argmax(np.abs(cosines), axis=0)
    true = np.sign(cosines[match, np.arange(9)]) * network.biases[0][match]
    assert np.abs(vote.first.biases - true)[:2].min() > 3.0 * unit
    assert np.abs(found.biases - true)[:2].max() < 1.5 * unit
    along = np.sum((found.points - moved.points) * found.weights.T, axis=1)
    np.testing.assert_allclose(along, vote.first.biases - found.biases, atol=1e-9)
    still = np.abs(vote.centers) <= unit
    np.testing.assert_array_equal(found.biases[still], vote.first.biases[still])


def test_steps_of_other_units_do_not_move_the_center():
    places = np.array([[-1000.0, -2.0, -0.1, 0.1, 2.0, 1000.0]] * 2)
    changes = np.array([[0.0, 1e-3, 1e-2, 0.3, 0.1, 5.0], [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]])
    np.testing.assert_array_equal(_centers([(places, changes)], np.full(2, 40.0)), [0.1, 0.0])


def exactly(network, rng):
    oracle = Oracle(lambda X: network(X), network.n_inputs)
    first = find_first_layer(oracle, activation="erf", n_units=network.layer_widths[0], rng=rng)
    return oracle, exact_directions(oracle, first, get_activation("erf"), rng)


@pytest.mark.parametrize(("sizes", "scale"), [((8, 10, 9, 1), 1.0), ((5, 9, 9, 2), 3.0)])
def test_erf_norms_and_biases(sizes, scale, make_planted):
    network, rng = make_planted(sizes, seed=7, scale=scale, activation="erf"), np.random.RandomState(0)
    oracle, first = exactly(network, rng)
    before = oracle.n_queries
    found, shifts, support = erf_norms_and_biases(oracle, first, rng)
    assert support.min() >= 3 and oracle.n_queries - before <= 240 * sizes[1]
    lengths = np.linalg.norm(network.weights[0], axis=0)
    cosines = (network.weights[0] / lengths).T @ found.directions
    match = np.argmax(np.abs(cosines), axis=0)
    signs = np.sign(cosines[match, np.arange(sizes[1])])
    np.testing.assert_allclose(found.norms, lengths[match], rtol=1e-5)
    np.testing.assert_allclose(found.biases + shifts, signs * network.biases[0][match], atol=1e-4)
    offsets = [f.biases / f.norms for f in (first, found)]
    np.testing.assert_allclose(offsets[1], offsets[0], rtol=1e-12)


def test_an_erf_unit_without_a_tail_stays_as_it_is(make_planted):
    network, rng = make_planted((5, 4, 3, 1), seed=1, activation="erf"), np.random.RandomState(0)
    _, first = exactly(network, rng)
    flat = Oracle(lambda X: np.zeros(len(X)) + 1e-14 * network(X)[:, 0] + 1.0, 5)
    found, shifts, support = erf_norms_and_biases(flat, first, rng)
    np.testing.assert_allclose(found.weights, first.weights, rtol=1e-14)
    assert np.all(shifts == 0.0) and np.all(support == 0)
