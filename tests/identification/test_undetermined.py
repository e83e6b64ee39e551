"""A network that meets its answers is not called exact where these hardly depend on its weights."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.contradictions import undetermined_weights
from skident.network import FeedforwardNetwork


def nearly_parallel(gap):
    """Two of five units differ by so much: the sum of their output weights is known, the difference hardly."""
    network = make_network((4, 5, 2), output_activation="identity", random_state=0)
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    weights[0][:, 1], biases[0][1] = weights[0][:, 0] + gap, biases[0][0]
    return FeedforwardNetwork(weights, biases, "tanh", "identity")


def test_weights_that_answers_determine_are_not_open():
    network = make_network((4, 5, 2), output_activation="identity", random_state=0)
    assert undetermined_weights(network, 1e-9) == ""


@pytest.mark.parametrize("gap", [1e-7, 1e-6])
def test_weights_that_answers_hardly_tell_are_open_unless_these_are_met_to_rounding(gap):
    network = nearly_parallel(gap)
    assert "its weights are undetermined" in undetermined_weights(network, 1e-9)
    assert undetermined_weights(network, 1e-13) == ""


def test_an_error_of_this_size_in_the_answers_goes_with_the_error_said():
    """Weights moved along what is open: answers move by less than a billionth, weights by more than a hundredth."""
    network = nearly_parallel(1e-9)
    weights = [W.copy() for W in network.weights]
    weights[1][0] += 0.05
    weights[1][1] -= 0.05
    moved, U = network.with_parameters(weights, network.biases), np.random.default_rng(0).standard_normal((500, 4))
    error = np.abs(moved(U) - network(U)).max()
    assert 1e-12 < error < 1e-9
    assert "its weights are undetermined" in undetermined_weights(moved, error)


def test_others_are_not_looked_at():
    relu = make_network((4, 5, 2), activation="relu", output_activation="identity", random_state=0)
    assert undetermined_weights(relu, 1e-9) == ""
    assert undetermined_weights(make_network((40, 50, 2), output_activation="identity", random_state=0), 1e-9) == ""
