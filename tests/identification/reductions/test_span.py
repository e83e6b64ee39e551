"""The span of the first layer: its dimension, what it refuses, and that its inverse recovers all weights."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.reductions.span import _Span, lifted
from skident.metrics import parameter_error
from skident.oracle import Oracle

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "softplus")


def planted(shape, activation, seed):
    return make_network(shape, activation=activation, output_activation="identity", random_state=seed, bias_scale=0.3)


def measured(network):
    oracle, rng = Oracle(network.__call__, network.n_inputs), np.random.RandomState(0)
    U = rng.standard_normal((200, network.n_inputs))
    Y = oracle.standardize_outputs(oracle(U))
    oracle.measure_accuracy(U, Y, rng)
    return oracle


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(40, 6, 1), (30, 5, 4, 2)])
def test_its_dimension_is_the_width_and_its_inverse_recovers_the_weights(activation, shape):
    """Networks in the span of a basis that is off by 1e-7, lifted to all inputs."""
    network = planted(shape, activation, 0)
    oracle, rng = measured(network), np.random.RandomState(1)
    basis = _Span(oracle, rng, activation in ("relu", "leaky_relu")).basis()
    assert basis.shape == (shape[0], shape[1])
    turned = np.linalg.qr(basis + 1e-7 * rng.standard_normal(basis.shape))[0]
    scaled = network.with_parameters(
        [*network.weights[:-1], network.weights[-1] / oracle.output_scale],
        [*network.biases[:-1], (network.biases[-1] - oracle.output_center) / oracle.output_scale],
    )
    W, U = network.weights[0], rng.standard_normal((200, shape[0]))
    inner = scaled.with_parameters([turned @ (turned.T @ W), *scaled.weights[1:]], scaled.biases)
    assert parameter_error(scaled, inner) > 1e-9
    assert parameter_error(scaled, lifted(oracle, inner, turned, rng, scaled(U))) < 1e-12


def test_weights_of_units_that_rest_near_the_center_are_lifted():
    network = planted((60, 12, 6, 1), "relu", 0)
    network = network.with_parameters(network.weights, [network.biases[0] - 8.0, *network.biases[1:]])
    oracle, rng, U = Oracle(network.__call__, 60), np.random.RandomState(1), np.random.default_rng(0)
    turned = np.linalg.qr(network.weights[0] + 1e-8 * U.standard_normal((60, 12)))[0]
    inner = network.with_parameters([turned @ (turned.T @ network.weights[0]), *network.weights[1:]], network.biases)
    found = lifted(oracle, inner, turned, rng, network(U.standard_normal((200, 60))), 1e-10)
    assert parameter_error(network, found) < 1e-12


def test_units_that_rest_near_the_center_are_in_the_span():
    network = planted((60, 12, 6, 1), "relu", 0)
    network = network.with_parameters(network.weights, [network.biases[0] - 8.0, *network.biases[1:]])
    assert _Span(measured(network), np.random.RandomState(0), True).basis().shape == (60, 12)


def test_weights_that_fill_all_inputs_have_no_narrow_span():
    assert _Span(measured(planted((12, 12, 8, 4), "relu", 0)), np.random.RandomState(0), True).basis() is None


@pytest.mark.parametrize(
    ("activation", "shape"), [("relu", (100, 9, 5, 3)), ("gelu", (60, 6, 1)), ("relu", (100, 8, 6, 1))]
)
def test_default_call(activation, shape):
    network = planted(shape, activation, 2)
    X = np.random.default_rng(0).standard_normal((100, shape[0]))
    found = NetworkIdentifier(lambda X: network(X), random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == shape[1:]
    assert parameter_error(network, found.network_) < 1e-9
    assert found.report_.reductions == [f"span of the first layer ({shape[1]} of {shape[0]} inputs)"]
    assert "reduced: span" in str(found.report_)


def test_inputs_of_which_most_are_constant(rng):
    """Constant inputs get weight 0 and a scale of their own, so that the span is that of the others."""
    network = make_network((84, 6, 3), activation="relu", output_activation="identity", random_state=0)
    moving = np.arange(784) % 9 == 0
    moving[np.flatnonzero(moving)[84:]] = False
    X = np.where(moving, rng.standard_normal((200, 784)), 0.5)
    model = lambda X: network(X[:, moving])  # noqa: E731
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-8)
