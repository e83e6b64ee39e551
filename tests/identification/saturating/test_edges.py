from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.downstream import fit_downstream
from skident.identification.saturating.edges import network_on_edges
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.saturating.tails import norms_from_tails
from skident.metrics import relative_max_error
from skident.network import Architecture, FeedforwardNetwork
from skident.oracle import Oracle, probabilities_from_logits


def first_layer_of(network, oracle, rng):
    """The first layer as the search gives it, in the network's own order and signs."""
    first = find_first_layer(oracle, activation=network.activation, n_units=network.layer_widths[0], rng=rng)
    W = network.weights[0]
    order = np.argmax(np.abs(first.directions.T @ (W / np.linalg.norm(W, axis=0))), axis=0)
    signs = np.sign(np.sum(first.directions[:, order] * W, axis=0))
    return replace(first, weights=W, biases=signs * first.biases[order], points=first.points[order])


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(3, 6, 4, 2), (6, 4, 3)])
def test_shifts_where_the_rest_is_known(sizes, activation):
    """More units than inputs, or fewer; shifts off by up to 3."""
    names = {"activation": activation, "output_activation": "identity"}
    truth = make_network(sizes, shift_scale=0.5, random_state=0, **names)
    oracle, rng = Oracle(lambda X: truth(X), sizes[0]), np.random.RandomState(0)
    first = first_layer_of(truth, oracle, rng)
    first = replace(first, biases=truth.biases[0] + rng.uniform(-3.0, 3.0, sizes[1]))
    start = truth.with_parameters(truth.weights, [first.biases, *truth.biases[1:]])
    before = oracle.n_queries
    found, misfit = network_on_edges(oracle, first, start, rng)
    assert misfit < 1e-10 and oracle.n_queries - before <= 2 * 24 * 16 * sizes[1]
    np.testing.assert_allclose(found.biases[0], truth.biases[0], atol=1e-8)


def test_many_units_beyond_the_inputs():
    """Where few places leave a unit alone, enough of them are looked for: shifts come out to rounding."""
    truth = make_network((10, 14, 4, 1), shift_scale=0.5, output_activation="identity", random_state=2)
    oracle, rng = Oracle(lambda X: truth(X), 10), np.random.RandomState(0)
    first = replace(first_layer_of(truth, oracle, rng), biases=truth.biases[0] + rng.uniform(-1.0, 1.0, 14))
    start = truth.with_parameters(truth.weights, [first.biases, *truth.biases[1:]])
    found, misfit = network_on_edges(oracle, first, start, rng)
    assert misfit < 1e-10
    np.testing.assert_allclose(found.biases[0], truth.biases[0], atol=1e-8)


def test_what_vertices_leave_uncertain_is_mended_too():
    truth = make_network((4, 6, 3, 2), shift_scale=0.5, output_activation="identity", random_state=1)
    oracle, rng = Oracle(lambda X: truth(X), 4), np.random.RandomState(0)
    first = first_layer_of(truth, oracle, rng)
    weights = [W + 1e-3 * rng.standard_normal(W.shape) for W in truth.weights]
    start = truth.with_parameters([first.weights, *weights[1:]], [first.biases, *truth.biases[1:]])
    found, misfit = network_on_edges(oracle, first, start, rng)
    U = rng.standard_normal((500, 4))
    assert misfit < 1e-9 and relative_max_error(truth(U), found(U)) < 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_a_steep_classifier_with_more_units_than_inputs(seed):
    """From nothing but probabilities: the whole way of vertices and edges."""
    network = make_network((3, 5, 3, 3), shift_scale=0.5, output_activation="identity", random_state=seed)
    truth = FeedforwardNetwork([3.0 * W for W in network.weights], network.biases, "tanh", "identity")
    box = lambda X: probabilities_from_logits(truth(X))  # noqa: E731
    oracle, rng = Oracle(box, 3, response="predict_proba"), np.random.RandomState(seed)
    first = norms_from_tails(oracle, find_first_layer(oracle, n_units=5, rng=rng), "tanh", rng)
    found, misfit = fit_downstream(oracle, first, "edges", Architecture((5, 3, 3), "tanh", "identity"), rng)
    U = rng.standard_normal((300, 3))
    assert misfit < 1e-6 and np.abs(probabilities_from_logits(found(U)) - box(U)).max() < 1e-5
