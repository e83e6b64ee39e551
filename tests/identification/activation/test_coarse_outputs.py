"""Detection of activations from outputs in half precision, decimals and with noise."""

from __future__ import annotations

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.activation import detect_activation
from skident.oracle import Oracle

FORMATS = {
    "float32": np.float32,
    "float16": np.float16,
    "4 decimals": lambda Y: Y.round(4),
    "2 decimals": lambda Y: Y.round(2),
    "noise 1e-3": lambda Y: Y + 1e-3 * np.random.RandomState(0).standard_normal(Y.shape),
    "noise 1e-2": lambda Y: Y + 1e-2 * np.random.RandomState(0).standard_normal(Y.shape),
}


def detected(activation, outputs, seed):
    network = make_network((10, 32, 1), activation=activation, output_activation="identity", random_state=seed)
    oracle, rng = Oracle(lambda X: FORMATS[outputs](network(X)), 10), np.random.RandomState(seed)
    U = rng.standard_normal((20, 10))
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    return detect_activation(oracle, rng, accuracy.std)


@pytest.mark.parametrize("seed", [440, 441])
@pytest.mark.parametrize("outputs", FORMATS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_units_that_grow_and_units_that_settle(activation, outputs, seed):
    found = detected(activation, outputs, seed)
    assert found.name == activation and found.output.name == "identity"


@pytest.mark.parametrize("activation", ["gelu", "silu", "softplus", "elu"])
def test_smooth_units_that_grow_are_left_to_the_fit(activation):
    found = detected(activation, "float32", 442)
    assert found.name == "gelu" and "the fit of the network decides" in found.doubt


@pytest.mark.parametrize("output", ["identity", "sigmoid", "tanh", "softmax"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_output_activations_in_single_precision(activation, output):
    widths = (8, 16, 3) if output == "softmax" else (8, 16, 1)
    inner = "identity" if output == "softmax" else output
    for seed in (450, 451):
        network = make_network(widths, activation=activation, output_activation=inner, random_state=seed)
        oracle, rng = (
            Oracle(lambda X, f=network: np.float32(_probabilities(f(X), output)), 8),
            np.random.RandomState(seed),
        )
        U = rng.standard_normal((20, 8))
        accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
        found = detect_activation(oracle, rng, accuracy.std)
        assert (found.name, found.output.name) == (activation, output)


def _probabilities(Y, output):
    if output != "softmax":
        return Y
    P = np.exp(Y - Y.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


FINE = {
    "8 decimals": lambda Y: Y.round(8),
    "11 decimals": lambda Y: Y.round(11),
    "noise 1e-12": lambda Y: Y + 1e-12 * np.random.RandomState(0).standard_normal(Y.shape),
    "noise 1e-9": lambda Y: Y + 1e-9 * np.random.RandomState(0).standard_normal(Y.shape),
    "10 digits": lambda Y: np.array([float(f"{y:.10g}") for y in Y.ravel()]).reshape(Y.shape),
}


@pytest.mark.parametrize("outputs", FINE)
@pytest.mark.parametrize(("activation", "widths"), [("relu", (4, 6, 1)), ("relu", (6, 8, 5, 2)), ("identity", (5, 2))])
def test_small_errors_hide_no_bend(activation, widths, outputs):
    """Windows as short as small errors allow contain no activation boundary of a small network."""
    for seed in (452, 453):
        network = make_network(widths, activation=activation, output_activation="identity", random_state=seed)
        oracle, rng = Oracle(lambda X, f=network: FINE[outputs](f(X)), widths[0]), np.random.RandomState(seed)
        U = rng.standard_normal((20, widths[0]))
        accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
        found = detect_activation(oracle, rng, accuracy.std)
        assert (found.name, found.doubt) == (activation, "")


def test_outputs_that_bend_far_from_the_center_only_are_not_linear():
    def box(X):
        return X @ np.arange(1.0, 5.0)[:, None] + np.maximum(X[:, :1] + X[:, 1:2] - 50.0, 0.0)

    for rounded in (box, lambda X: box(X).round(9)):
        oracle, rng = Oracle(rounded, 4), np.random.RandomState(454)
        U = rng.standard_normal((20, 4))
        accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
        assert detect_activation(oracle, rng, 0.0 if accuracy.exact else accuracy.std).name == "relu"
