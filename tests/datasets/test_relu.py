"""Samples of random ReLU networks, and the comparison of their units."""

import numpy as np
import pytest

from skident.datasets import make_relu_network
from skident.metrics import unit_matching_error
from skident.network import FeedforwardNetwork


def test_network_is_as_described():
    X, y, network = make_relu_network(500, 6, 40, bias_range=0.5, random_state=0)
    assert X.shape == (500, 6) and y.shape == (500,) and network.layer_widths == (40, 1)
    np.testing.assert_allclose(np.linalg.norm(network.weights[0], axis=0), 1.0)
    a = np.abs(network.weights[1])
    assert np.abs(network.biases[0]).max() <= 0.5 and a.min() >= 1 and a.max() <= 2
    np.testing.assert_array_equal(network(X)[:, 0], y)


def test_noise_and_rows_do_not_change_the_network():
    X, y, network = make_relu_network(20_000, 4, 3, noise=0.3, random_state=1)
    assert make_relu_network(10, 4, 3, random_state=1)[2] == network
    clean = network(X)[:, 0]
    # The standard deviation of 20 000 draws is right to 0.5 %: four of its standard errors are 2 %.
    assert abs(np.std(y - clean) / np.std(clean) - 0.3) < 0.006


def test_smoothed_analysis():
    base = np.zeros((50, 60))
    base[0] = 1.0
    close = [make_relu_network(1, 50, 60, perturbation=tau, base_weights=base, random_state=0)[2] for tau in (0.1, 1.0)]
    products = [np.abs(net.weights[0].T @ base[:, 0]).mean() for net in close]
    # e_1 + tau g / sqrt(d) has a cosine of about 1 / sqrt(1 + tau^2) with e_1; means of 60 vary by 1 or 2 %.
    np.testing.assert_allclose(products, [1 / np.sqrt(1.01), 1 / np.sqrt(2)], rtol=0.06)
    assert np.linalg.matrix_rank(make_relu_network(1, 5, 5, perturbation=0.1, random_state=0)[2].weights[0]) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -0.1}, "noise must be a number >= 0"),
        ({"n_units": 0}, "n_units must be an integer >= 1"),
        ({"perturbation": 0}, "perturbation must be a number > 0"),
        ({"base_weights": np.eye(20)}, "give perturbation too"),
        ({"perturbation": 0.1, "base_weights": np.eye(3)}, r"of shape \(20, 10\).* got shape \(3, 3\)"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        make_relu_network(**options)


def test_matching_undoes_order_signs_and_scales(rng):
    W, b, a = rng.standard_normal((4, 5)), rng.standard_normal(5), rng.standard_normal(5)
    order, signs, scale = rng.permutation(5), np.where(np.arange(5) % 2, -1.0, 1.0), rng.uniform(0.5, 2, 5)
    other = (W * signs * scale)[:, order], (b * signs * scale)[order], (a / scale)[order]
    error = unit_matching_error((W, b, a), other)
    assert max(error.weights, error.biases, error.output_weights) < 1e-14
    np.testing.assert_array_equal(order[error.permutation], np.arange(5))
    np.testing.assert_array_equal(error.signs, signs)


def test_errors_are_those_of_the_worst_unit():
    truth = np.eye(3), np.zeros(3), np.ones(3)
    W = np.eye(3)
    W[:, 0] = [np.cos(0.2), np.sin(0.2), 0]
    error = unit_matching_error(truth, (W, np.array([0.0, 0.3, 0.1]), np.array([1.0, 1.0, 0.5])))
    np.testing.assert_allclose(error[:3], [2 * np.sin(0.1), 0.3, 0.5])


def test_networks_that_cannot_be_matched():
    network = make_relu_network(1, 4, 3, random_state=0)[2]
    with pytest.raises(ValueError, match="has 3 units of 4 inputs, the true one 2 of 4"):
        unit_matching_error(make_relu_network(1, 4, 2, random_state=0)[2], network)
    with pytest.raises(ValueError, match="true_network must have one hidden layer and one output"):
        unit_matching_error(FeedforwardNetwork([np.eye(4), np.eye(4)], [np.zeros(4)] * 2, "relu"), network)
    with pytest.raises(ValueError, match="a unit with zero weights"):
        unit_matching_error((np.ones((2, 1)), np.zeros(1), np.ones(1)), (np.zeros((2, 1)), np.zeros(1), np.ones(1)))
