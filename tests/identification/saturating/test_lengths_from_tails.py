import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.saturating.tails import norms_from_tails
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


def steep(sizes, steepness, activation, seed=0):
    """A network whose layers behind the first are steep."""
    options = {"activation": activation, "output_activation": "identity", "random_state": seed}
    network = make_network(sizes, shift_scale=0.5, **options)
    weights = [network.weights[0], *(steepness * W for W in network.weights[1:])]
    return FeedforwardNetwork(weights, network.biases, activation, "identity")


@pytest.mark.parametrize(("activation", "steepness"), [("tanh", 1.0), ("tanh", 8.0), ("sigmoid", 16.0)])
@pytest.mark.parametrize("sizes", [(6, 5, 3, 1), (8, 7, 4, 2)])
def test_lengths_whatever_follows(sizes, activation, steepness):
    network = steep(sizes, steepness, activation)
    oracle, rng = Oracle(lambda X: network(X), sizes[0]), np.random.RandomState(0)
    first = find_first_layer(oracle, activation=activation, n_units=sizes[1], rng=rng)
    # As if the shape near the hyperplanes had misled.
    wrong = np.exp(rng.uniform(-1, 1, sizes[1]))
    first.weights, first.biases = first.weights * wrong, first.biases * wrong
    found = norms_from_tails(oracle, first, activation, rng)
    unit = network.weights[0] / np.linalg.norm(network.weights[0], axis=0)
    match = np.argmax(np.abs(unit.T @ found.directions), axis=0)
    lengths = np.linalg.norm(network.weights[0], axis=0)[match]
    # Four powers of at most 1e-3 relative to what is seen leave 1e-5 and less of the smallest deviations.
    np.testing.assert_allclose(np.linalg.norm(found.weights, axis=0), lengths, rtol=1e-4)
    # The hyperplanes stay where they were.
    offsets = [f.biases / np.linalg.norm(f.weights, axis=0) for f in (first, found)]
    np.testing.assert_allclose(offsets[1], offsets[0], rtol=1e-12)


def test_activations_without_exponential_tails_are_left_alone():
    network = make_network((5, 4, 2), activation="erf", random_state=0)
    oracle = Oracle(network, 5)
    first = find_first_layer(oracle, activation="erf", n_units=4, rng=np.random.RandomState(0))
    n_queries = oracle.n_queries
    assert norms_from_tails(oracle, first, "erf", np.random.RandomState(0)) is first and oracle.n_queries == n_queries


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_a_step_lost_in_rounding_leaves_its_unit_alone(activation):
    network = make_network(
        (6, 5, 2), shift_scale=0.5, activation=activation, output_activation="identity", random_state=0
    )
    first = find_first_layer(Oracle(network, 6), activation=activation, n_units=5, rng=np.random.RandomState(0))
    unit = int(np.argmax(np.abs(network.weights[0].T @ first.directions[:, 0])))
    output = network.weights[1].copy()
    output[unit] *= 1e-14  # as behind steep units that saturate the next layer
    faint = FeedforwardNetwork([network.weights[0], output], network.biases, activation, "identity")
    found = norms_from_tails(Oracle(faint, 6), first, activation, np.random.RandomState(0))
    np.testing.assert_array_equal(found.weights[:, 0], first.weights[:, 0])
