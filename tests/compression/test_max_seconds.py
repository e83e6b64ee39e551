"""`NetworkCompressor(max_seconds=...)`, and units that are constant on the data."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkCompressor
from skident.datasets import make_network
from skident.fitting.pruning import without_constant_units
from skident.network import FeedforwardNetwork


def with_dead_units(network, n, rng):
    """ReLU units that are never active near the center, in every hidden layer; and their number is n."""
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    for k in range(len(weights) - 1):
        weights[k] = np.hstack([weights[k], 0.01 * rng.standard_normal((len(weights[k]), n))])
        biases[k] = np.append(biases[k], np.full(n, -50.0))
        weights[k + 1] = np.vstack([weights[k + 1], rng.standard_normal((n, weights[k + 1].shape[1]))])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def relu(widths, seed=0):
    return make_network(widths, activation="relu", output_activation="identity", random_state=seed, bias_scale=0.3)


@pytest.mark.parametrize("widths", [(5, 6, 2), (5, 6, 4, 2)])
def test_units_that_are_constant_on_the_data_go_at_once(widths, rng):
    network, X = relu(widths), rng.standard_normal((200, 5))
    compressor = NetworkCompressor(with_dead_units(network, 100, rng), tol=1e-9, random_state=0).fit(X)
    first, second = compressor.path_[:2]
    assert all(before - 100 >= after for before, after in zip(first["layer_widths"][:-1], widths[1:-1], strict=True))
    assert all(after <= m for after, m in zip(second["layer_widths"], widths[1:], strict=True)) and second["accepted"]
    np.testing.assert_allclose(compressor.predict(X).reshape(200, -1), network(X), atol=1e-7)


def test_a_layer_of_constant_units_keeps_one(rng):
    network = relu((3, 4, 2))
    network = network.with_parameters([0.0 * network.weights[0], network.weights[1]], network.biases)
    smaller, U = without_constant_units(network, rng.standard_normal((20, 3))), rng.standard_normal((50, 3))
    assert smaller.layer_widths == (1, 2)
    np.testing.assert_allclose(smaller(U), network(U), rtol=1e-13)


def test_what_is_reached_in_time_is_returned_with_a_warning(rng, own_seconds):
    network = with_dead_units(relu((30, 120, 2)), 10, rng)
    compressor, X = (
        NetworkCompressor(network, tol=1e-3, max_seconds=0.5, random_state=0),
        rng.standard_normal((300, 30)),
    )
    with pytest.warns(ConvergenceWarning, match=r"max_seconds=0.5 are over: .*Raise max_seconds, or tol"):
        compressor.fit(X)
    assert compressor.layer_widths_[0] <= 120 and compressor.error_ <= 1e-3
    assert compressor.path_[-1]["layer_widths"] == compressor.layer_widths_


def test_nothing_is_reached_in_no_time(rng, own_seconds):
    compressor = NetworkCompressor(relu((5, 6, 2)), max_seconds=1e-9)
    with pytest.raises(ValueError, match="max_seconds=1e-09 are over before any unit was removed: raise max_seconds"):
        compressor.fit(rng.standard_normal((50, 5)))
    assert not hasattr(compressor, "network_")


def test_a_limit_that_is_not_reached_changes_nothing(rng, own_seconds):
    network, X = relu((5, 12, 2)), rng.standard_normal((80, 5))
    free, limited = (
        NetworkCompressor(network, tol=0.1, max_seconds=seconds, random_state=0).fit(X) for seconds in (None, 1e3)
    )
    assert free.network_ == limited.network_


def test_a_layer_that_does_nothing_goes(rng):
    """Units that are always active pass a linear map on; one hidden layer stays in any case."""
    network, X = relu((4, 6, 5, 2)), rng.standard_normal((200, 4))
    first, second, last = network.biases
    passing = network.with_parameters(network.weights, [first, second + 100.0, last])
    smaller = without_constant_units(passing, X)
    assert smaller.layer_widths == (6, 2)
    np.testing.assert_allclose(smaller(X), passing(X), rtol=1e-11, atol=1e-11)
    compressor = NetworkCompressor(passing, tol=1e-6, random_state=0).fit(X)
    assert len(compressor.layer_widths_) == 2
    both = passing.with_parameters(passing.weights, [passing.biases[0] + 100.0, *passing.biases[1:]])
    assert len(without_constant_units(both, X).layer_widths) == 2
