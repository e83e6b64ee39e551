"""Test for a missing unit: false alarms and power, by their rates over seeds."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.network import FeedforwardNetwork
from skident.samples.missing_unit import missing_unit_test


def case(seed, n=150, extra=0.0):
    """Samples of two units and noise, a third one with output weight `extra`, and the network of the two."""
    rng = np.random.default_rng(seed)
    W, b = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0]]), np.array([0.2, -0.3, 0.1])
    X = rng.standard_normal((n, 2))
    outputs = np.maximum(X @ W + b, 0.0)
    y = outputs @ [1.0, -1.0, extra] + 0.3 * rng.standard_normal(n)
    network = FeedforwardNetwork([W[:, :2], np.array([[1.0], [-1.0]])], [b[:2], np.zeros(1)], "relu", "identity")
    return X, y, network


def p_values(extra):
    cases = [(seed, *case(seed, extra=extra)) for seed in range(60)]
    return np.array([missing_unit_test(net, X, y, n_simulations=19, random_state=s).p_value for s, X, y, net in cases])


def test_false_alarms_are_as_frequent_as_stated():
    """Of 60 p-values at most 0.05: binomial with 3 expected, beyond 9 with a probability of 0.001."""
    assert np.sum(p_values(0.0) <= 0.05) <= 9


def test_a_large_missing_unit_is_detected():
    assert np.mean(p_values(1.5) <= 0.05) >= 0.95


def test_the_unit_that_is_missing_is_the_one_reported():
    X, y, network = case(0, n=600, extra=2.0)
    found = missing_unit_test(network, X, y, n_simulations=19, random_state=0)
    unit, true = np.r_[found.weights, found.bias], np.array([-1.0, 1.0, 0.1])
    assert abs(unit @ true) / np.linalg.norm(unit) / np.linalg.norm(true) > 0.98  # either sign: the linear part differs


def test_the_estimator_tests_its_own_fit():
    X, y, _ = make_relu_network(600, n_features=3, n_units=2, noise=0.2, random_state=1)
    with pytest.warns(ConvergenceWarning, match="a further unit"):
        reg = TensorReLURegressor(n_units=1, random_state=0).fit(X, y)
    found = reg.missing_unit_test(X, y)
    assert found.n_simulations == 199 and found.p_value <= 0.05
    assert found.p_value == reg.missing_unit_test(X, y).p_value


def test_too_few_samples_are_refused():
    X, y, network = case(0, n=7)
    with pytest.raises(ValueError, match="more samples"):
        missing_unit_test(network, X, y)
