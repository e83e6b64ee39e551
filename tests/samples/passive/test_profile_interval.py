"""Profile intervals: those of linear least squares, coverage over seeds, and sides without an end."""

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import t as student_t

from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.fitting.standard_errors import standard_errors
from skident.network import FeedforwardNetwork
from skident.network.calculus import flatten_parameters
from skident.samples.passive.profile_interval import profile_interval


def test_of_a_linear_model_it_is_the_textbook_interval(rng):
    X = rng.standard_normal((30, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 + 0.4 * rng.standard_normal(30)
    A = np.column_stack([X, np.ones(30)])
    coef, (left,), *_ = np.linalg.lstsq(A, y)
    errors = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * left / 26)
    network = FeedforwardNetwork([coef[:3, None]], [coef[3:]], "identity")
    for k in range(4):
        ends = profile_interval(network, X, y[:, None], k, 0.9)
        np.testing.assert_allclose(ends, coef[k] + student_t.ppf(0.95, 26) * errors[k] * np.array([-1, 1]), rtol=1e-2)


def test_coverage_of_a_network_of_two_units():
    """95 % intervals of three parameters of 40 tables: as many as a rate of 0.95 gives in 999 of 1000 cases."""
    weights = [np.array([[1.5, 0.3], [0.2, -1.0]]), np.array([[1.0], [-0.8]])]
    truth = FeedforwardNetwork(weights, [np.array([0.2, -0.3]), np.array([0.1])], "tanh")
    params, covered = flatten_parameters(truth.weights, truth.biases), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((100, 2))
        y = truth(X) + 0.1 * truth(X).std() * rng.standard_normal((100, 1))
        for k in (0, 5, 7):
            low, high = profile_interval(truth, X, y, k, 0.95)
            assert low < high
            covered.append(low <= params[k] <= high)
    # Three intervals of one table depend on each other: the number of tables counts.
    assert np.mean(covered) >= binom.ppf(1e-3, 40, 0.95) / 40


def test_a_weight_that_grows_without_effect_has_no_upper_end(rng):
    """A step between two samples: any larger slope of the unit fits as well."""
    X = np.concatenate([np.linspace(-2.0, -0.5, 20), np.linspace(0.5, 2.0, 20)])[:, None]
    y = np.sign(X) + 0.05 * rng.standard_normal(X.shape)
    network = FeedforwardNetwork([np.array([[8.0]]), np.array([[1.0]])], [np.zeros(1), np.zeros(1)], "tanh")
    low, high = profile_interval(network, X, y, 0, 0.95)
    assert 1.0 < low < 8.0 and high == np.inf


def test_of_an_estimator(rng):
    truth = make_network((3, 2, 2), output_activation="identity", random_state=1)
    X = rng.standard_normal((200, 3))
    Y = truth(X) + 0.05 * rng.standard_normal((200, 2))
    identifier = PassiveNetworkIdentifier((2, 2), random_state=0).fit(X, Y)
    assert identifier.network_.layer_widths == (2, 2)
    errors = standard_errors(identifier.network_, X, 0.05)[0][0]
    low, high = identifier.profile_interval(X, Y, 0, (1, 0))
    assert low < identifier.network_.weights[0][1, 0] < high
    assert 3.0 < (high - low) / errors[1, 0] < 5.0  # 2 times 1.96 to first order
    assert np.isfinite(identifier.profile_interval(X, Y, 1, 0)).all()
    for layer, index in ((2, 0), (0, (3, 0)), (0, 2), ("a", 0), (0, (0, 0, 0))):
        with pytest.raises(ValueError, match="must be"):
            identifier.profile_interval(X, Y, layer, index)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        identifier.profile_interval(X, Y, 0, 0, level=95)
    with pytest.raises(ValueError, match="Pass the samples of the fit"):
        identifier.profile_interval(X[:4], Y[:4], 0, 0)
