"""Biases, norms and output weights of one hidden layer from profiles."""

import numpy as np
import pytest

from skident.identification.saturating.first_layer import FirstLayer
from skident.identification.smooth.single_layer import with_biases_from_profiles
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_biases_norms_and_output_weights_are_corrected(activation):
    rng = np.random.RandomState(0)
    W, b, V = rng.standard_normal((5, 7)), rng.standard_normal(7), rng.uniform(0.5, 1.0, (7, 1))
    network = FeedforwardNetwork([W, V], [b, np.ones(1)], activation)
    oracle = Oracle(lambda X: network(X).astype(np.float32), 5)
    X = rng.standard_normal((100, 5))
    oracle.standardize_outputs(network(X), "identity")
    oracle.measure_accuracy(X, oracle(X), rng)
    true = network.with_parameters(
        [W, V / oracle.output_scale], [b, (1.0 - oracle.output_center) / oracle.output_scale]
    )
    factors, shifts = 1.0 + 0.1 * rng.standard_normal(7), rng.uniform(-2.0, 2.0, 7)
    directions = factors * (W + 2e-5 * np.linalg.norm(W, axis=0) * rng.standard_normal(W.shape))
    first = FirstLayer(directions, factors * b + shifts, np.zeros((7, 5)), 3e3, 1, 0, errors=np.full(7, 2e-5))
    rough = true.with_parameters([first.weights, 0.5 * true.weights[1]], [first.biases, np.zeros(1)])
    found = with_biases_from_profiles(oracle, first, rough, rng)
    np.testing.assert_allclose(found.weights[0], W, atol=0.03)
    np.testing.assert_allclose(found.biases[0], b, atol=0.03)
    assert np.abs(found(X) - true(X)).max() < 0.05
