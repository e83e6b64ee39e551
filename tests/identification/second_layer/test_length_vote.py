from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.second_layer.weight_norms import _middles, centred, vote_on_norms
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


def target(sizes, steepness, activation, seed=0):
    options = {"activation": activation, "output_activation": "identity", "random_state": seed}
    network = make_network(sizes, shift_scale=0.5, **options)
    weights = [network.weights[0], *(steepness * W for W in network.weights[1:])]
    return FeedforwardNetwork(weights, network.biases, activation, "identity")


def length_errors(first, network):
    lengths = np.linalg.norm(network.weights[0], axis=0)
    match = np.argmax(np.abs((network.weights[0] / lengths).T @ first.directions), axis=0)
    return np.abs(first.norms / lengths[match] - 1.0)


@pytest.mark.parametrize(("activation", "steepness"), [("tanh", 1.0), ("tanh", 6.0), ("sigmoid", 12.0)])
@pytest.mark.parametrize("sizes", [(6, 9, 8, 1), (10, 16, 16, 1), (8, 7, 4, 2)])
def test_lengths_whatever_the_profile_says(sizes, activation, steepness):
    network = target(sizes, steepness, activation)
    oracle, rng = Oracle(lambda X: network(X), sizes[0]), np.random.RandomState(0)
    first = find_first_layer(oracle, activation=activation, n_units=sizes[1], rng=rng)
    wrong = np.exp(rng.uniform(-1.2, 1.2, sizes[1]))
    first = replace(first, weights=first.weights * wrong, biases=first.biases * wrong)
    vote = vote_on_norms(oracle, first, activation, rng)
    assert vote.support.min() >= 3
    assert length_errors(vote.first, network).max() < 1e-6
    offsets = [f.biases / f.norms for f in (first, vote.first)]
    np.testing.assert_allclose(offsets[1], offsets[0], rtol=1e-12)


def test_a_unit_without_a_tail_keeps_its_length_and_has_no_support():
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
def test_a_hyperplane_far_beside_its_unit_is_moved_to_the_middle_of_the_step(activation):
    unit, network = 2.0 if activation == "sigmoid" else 1.0, target((6, 9, 8, 1), 3.0, activation)
    oracle, rng = Oracle(lambda X: network(X), 6), np.random.RandomState(0)
    first = find_first_layer(oracle, activation=activation, n_units=9, rng=rng)
    wrong = first.biases + np.where(np.arange(9) < 2, [5.0 * unit], 0.0)
    moved = replace(
        first, biases=wrong, points=first.points - (first.directions * (wrong - first.biases) / first.norms).T
    )
    vote = vote_on_norms(oracle, moved, activation, rng)
    found = centred(vote, activation)
    assert vote.support.min() >= 3 and np.abs(vote.middles[:2]).min() > 3.0 * unit
    cosines = (network.weights[0] / np.linalg.norm(network.weights[0], axis=0)).T @ found.directions
    match = np.argmax(np.abs(cosines), axis=0)
    true = np.sign(cosines[match, np.arange(9)]) * network.biases[0][match]
    assert np.abs(vote.first.biases - true)[:2].min() > 3.0 * unit
    assert np.abs(found.biases - true)[:2].max() < 1.5 * unit
    along = np.sum((found.points - moved.points) * found.weights.T, axis=1)
    np.testing.assert_allclose(along, vote.first.biases - found.biases, atol=1e-9)
    still = np.abs(vote.middles) <= unit
    np.testing.assert_array_equal(found.biases[still], vote.first.biases[still])


def test_another_step_beyond_the_units_own_is_not_its_middle():
    places = np.array([[-1000.0, -2.0, -0.1, 0.1, 2.0, 1000.0]] * 2)
    changes = np.array([[0.0, 1e-3, 1e-2, 0.3, 0.1, 5.0], [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]])
    np.testing.assert_array_equal(_middles([(places, changes)], np.full(2, 40.0)), [0.1, 0.0])
