"""Piecewise linear, curved or linear: from windows near the center, on outputs in single precision."""

from __future__ import annotations

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.activation.windows import shape_in_windows
from skident.oracle import Oracle

CASES = [
    ("relu", (10, 32, 1), "piecewise"),
    ("relu", (20, 32, 16, 2), "piecewise"),
    ("tanh", (10, 16, 1), "curved"),
    ("softplus", (8, 16, 1), "curved"),
    ("gelu", (10, 16, 2), "curved"),
    ("identity", (6, 1), "linear"),
]


@pytest.mark.parametrize(("activation", "widths", "shape"), CASES)
@pytest.mark.parametrize("seed", [420, 421, 422])
def test_shapes_are_told_apart_in_single_precision(activation, widths, shape, seed):
    network = make_network(widths, activation=activation, output_activation="identity", random_state=seed)
    oracle, rng = Oracle(lambda X: np.float32(network(X)), widths[0]), np.random.RandomState(seed)
    U = rng.standard_normal((20, widths[0]))
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    before = oracle.n_queries
    assert shape_in_windows(oracle, accuracy.std, rng) == shape
    assert oracle.n_queries - before <= 1200 + 192 * (shape == "linear")


def test_errors_that_hide_the_shape_are_no_evidence():
    oracle = Oracle(lambda X: np.tanh(X[:, :1]), 3)
    U = np.eye(3)
    oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), np.random.RandomState(0))
    assert shape_in_windows(oracle, np.array([1e-2]), np.random.RandomState(0)) is None
