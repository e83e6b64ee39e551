import numpy as np
import pytest
from scipy.special import expit

from skident.datasets import make_network
from skident.identification.saturating.biases import biases_from_gradients, find_first_biases
from skident.identification.saturating.first_layer import FirstLayer
from skident.network import get_activation
from skident.oracle import Oracle


def rough_first_layer(network, bias_error, length_error, rng):
    """The first layer with wrong shifts and slightly wrong lengths, and the true one."""
    W, b = network.weights[0], network.biases[0]
    stretch = 1.0 + length_error * rng.standard_normal(len(b))
    points = np.zeros((len(b), len(W)))
    return FirstLayer(W * stretch, b + bias_error * rng.standard_normal(len(b)), points, 1e5, 1, 0)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("activation", "bias_error"), [("tanh", 0.5), ("sigmoid", 0.5), ("erf", 0.02)])
@pytest.mark.parametrize("sizes", [(8, 6, 4, 1), (9, 8, 5, 4, 3), (5, 3, 1, 1)])
def test_first_layer_is_made_exact(sizes, activation, bias_error, known, rng):
    network = make_network(sizes, bias_scale=0.5, activation=activation, output_activation="tanh", random_state=0)
    first = rough_first_layer(network, bias_error, 1e-3, rng)
    oracle = Oracle(lambda X: network(X), sizes[0])
    exact, n_next, residual = find_first_biases(
        oracle, first, activation, np.random.RandomState(0), n_next=sizes[2] if known else None
    )
    assert n_next == sizes[2] and residual < 1e-4
    # Differences are good to 1e-12; the null vectors' conditioning costs some of that.
    np.testing.assert_allclose(exact.weights, network.weights[0], atol=1e-4)
    np.testing.assert_allclose(exact.biases, network.biases[0], atol=1e-4)


def test_gradients_of_a_classifier_are_taken_where_logits_are_precise(rng):
    """Log-odds beyond 16 are lost, here on a third of the inputs."""
    network = make_network((9, 6, 4, 1), bias_scale=0.5, output_activation="identity", random_state=0)
    network = network.with_parameters([*network.weights[:2], 20.0 * network.weights[2]], network.biases)
    first = rough_first_layer(network, 0.5, 1e-4, rng)
    oracle = Oracle(lambda X: expit(network(X)[:, 0]), 9, response="predict_proba")
    exact, n_next, residual = find_first_biases(oracle, first, "tanh", np.random.RandomState(0), n_next=4)
    assert n_next == 4 and residual < 1e-4
    np.testing.assert_allclose(exact.biases, network.biases[0], atol=1e-5)


@pytest.mark.parametrize("sizes", [(8, 5, 5, 2), (8, 4, 6, 2), (4, 7, 3, 2)])
def test_no_narrower_layer_or_too_many_units(sizes, rng):
    """Nothing is claimed where the gradients fill the space, or cannot be taken."""
    network = make_network(sizes, bias_scale=0.5, random_state=0)
    first = rough_first_layer(network, 0.3, 0.0, rng)
    same, n_next, residual = find_first_biases(Oracle(network, sizes[0]), first, "tanh", np.random.RandomState(0))
    assert same is first and n_next is None and residual == np.inf


def test_noise_costs_accuracy_in_proportion(rng):
    network = make_network((8, 6, 3, 3), bias_scale=0.5, random_state=0)
    first = rough_first_layer(network, 0.3, 0.0, rng)
    errors = []
    for noise in (0.0, 1e-9, 1e-6):
        box = Oracle(lambda X, noise=noise: network(X) + noise * rng.standard_normal((len(X), 3)), 8)
        exact, n_next, _ = find_first_biases(box, first, "tanh", np.random.RandomState(0), noise=noise)
        assert n_next == 3
        errors.append(np.abs(exact.biases - network.biases[0]).max())
    assert errors[0] < 1e-6 and errors[1] < 1e-3 and errors[2] < 0.1


def test_too_few_gradients_claim_nothing():
    result = biases_from_gradients(np.ones((5, 4)), np.zeros((5, 4)), get_activation("tanh"))
    assert result.n_null == 0 and result.residual == np.inf
