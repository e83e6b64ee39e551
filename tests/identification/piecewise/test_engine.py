"""Networks with any number of hidden layers."""

import itertools

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.base.undetected import undetected_share
from skident.identification.piecewise.engine import find_piecewise_network
from skident.identification.piecewise.kernel.output_error import DeepProbe, measure_rounding
from skident.network import FeedforwardNetwork
from skident.oracle import Budget, NotIdentified, Oracle, OutOfBudgetError
from tests.rates import fewest_successes


def found_of(net, seed=0, **options):
    rng = np.random.RandomState(seed)
    noise = measure_rounding(net.oracle, rng)
    return find_piecewise_network(DeepProbe(net.oracle, noise, net.spread), rng=rng, **options)


def error_of(net, found, scale=1.0):
    X = scale * np.random.RandomState(9).standard_normal((4000, net.network.n_inputs))
    Y = net.oracle(X)
    return np.abs(found.network(X) - Y).max() / np.abs(Y - Y.mean(axis=0)).max()


@pytest.mark.parametrize(("widths", "seed"), [((6, 5, 1), 0), ((8, 7, 5, 1), 1), ((8, 7, 5, 3), 2)], ids=str)
def test_networks_are_found(widths, seed, planted):
    net, counts = planted(widths, seed), []
    found = found_of(net, callback=counts.append)
    assert found.wrong_share == 0.0 and error_of(net, found) < 1e-10 and error_of(net, found, 3.0) < 1e-10
    assert found.network.layer_widths == widths[1:] and found.n_linear == 0
    assert counts[-1] == sum(widths[1:-1])


def test_three_hidden_layers_are_found_as_often_as_measured(planted):
    """Of 32 such networks 23 were recovered with their widths; the others lack a unit, or keep some for a layer."""

    def is_recovered(net):
        try:
            found = found_of(net)
        except NotIdentified:
            return False
        return found.wrong_share == 0.0 and found.network.layer_widths == (8, 5, 4, 1) and error_of(net, found) < 1e-9

    recovered = [is_recovered(planted((10, 8, 5, 4, 1), seed)) for seed in range(6)]
    assert sum(recovered) >= fewest_successes(6, 23, 32)


def test_a_dead_unit_and_one_that_is_always_on(planted):
    net = planted((8, 7, 6, 1), 4)
    biases = [b.copy() for b in net.network.biases]
    biases[1][0], biases[1][1] = -1e3, 1e3
    net.set(net.network.weights, biases)
    found = found_of(net)
    assert found.wrong_share == 0.0 and error_of(net, found) < 1e-9
    # The dead one is not there, the other one is a linear part.
    assert found.network.layer_widths == (7, 6, 1) and found.n_linear == 1


def test_two_parallel_units(planted):
    net = planted((8, 7, 5, 1), 5)
    weights = [w.copy() for w in net.network.weights]
    weights[0][:, 1] = 0.5 * weights[0][:, 0]
    net.set(weights, net.network.biases)
    found = found_of(net)
    assert found.wrong_share == 0.0 and error_of(net, found) < 1e-10 and found.network.layer_widths == (7, 5, 1)


@pytest.mark.parametrize("seed", [11, 13])
def test_weights_that_no_critical_point_shows(seed):
    """Only those are read off the outputs; rounding of the others' null space does not open these."""
    rng, widths = np.random.default_rng(seed), (2, 6, 4, 2)
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in itertools.pairwise(widths)]
    network = FeedforwardNetwork(weights, [0.5 * rng.standard_normal(b) for b in widths[1:]], "relu")
    X = rng.standard_normal((300, 2))
    identifier = NetworkIdentifier(network, activation="relu", random_state=0).fit(X)
    assert identifier.report_.exact and np.abs(identifier.network_(3.0 * X) - network(3.0 * X)).max() < 1e-9


def test_inputs_of_a_range(planted):
    net = planted((5, 6, 4, 1), 6)
    net.oracle = Oracle(net.network, 5, input_range=(-4.0, 4.0))
    rng = np.random.RandomState(0)
    Y = net.oracle(net.oracle.clip_to_range(rng.standard_normal((200, 5))))
    noise = np.full(1, 16 * np.finfo(float).eps * np.abs(Y).max())
    found = find_piecewise_network(DeepProbe(net.oracle, noise, Y.std(axis=0)), rng=rng)
    U = net.oracle.clip_to_range(rng.standard_normal((1000, 5)))
    assert np.abs(found.network(U) - net.oracle(U)).max() < 1e-9 * np.ptp(Y)


def test_max_pooling_is_no_such_network():
    rng = np.random.RandomState(0)
    W = rng.standard_normal((3, 3, 3))
    oracle = Oracle(lambda X: np.max(X @ W, axis=0).sum(axis=1), 3)
    spread = oracle(rng.standard_normal((100, 3))).std(axis=0)
    noise = measure_rounding(oracle, rng)
    with pytest.raises(NotIdentified, match="units of layer [12]") as caught:
        find_piecewise_network(DeepProbe(oracle, noise, spread), rng=rng, max_queries=20_000)
    assert caught.value.reason == "unexplained"


def test_a_linear_function_has_no_units():
    oracle = Oracle(lambda X: X @ np.arange(1.0, 6.0), 5)
    rng = np.random.RandomState(0)
    noise = measure_rounding(oracle, rng)
    with pytest.raises(NotIdentified, match="do not bend anywhere"):
        find_piecewise_network(DeepProbe(oracle, noise, np.ones(1)), rng=rng)


def test_a_budget_that_is_too_small(planted):
    net = planted((8, 7, 5, 1), 1)
    net.oracle = Oracle(net.network, 8, budget=Budget(max_queries=2000))
    with pytest.raises(OutOfBudgetError, match="2000|queries|questions"):
        found_of(net)


@pytest.mark.parametrize("seed", range(3))
def test_error_of_outputs_with_boundaries_in_most_windows(seed):
    """With 3,000 units, a step of 3e-4 deviations in 784 inputs often crosses a boundary: no noise, no curvature."""
    rng = np.random.RandomState(seed)
    W, b, V = rng.standard_normal((784, 3000)) / 28.0, 0.1 * rng.standard_normal(3000), rng.standard_normal((3000, 3))
    oracle = Oracle(lambda X: np.maximum(X @ W + b, 0.0) @ V, 784)
    assert measure_rounding(oracle, rng).max() < 1e-11


def test_the_undetected_share_follows_from_outputs_that_were_checked(planted):
    """It counts held-out samples and further ones, not the outputs by which the search validated itself."""
    net = planted((8, 7, 5, 1), 1)
    X = np.random.RandomState(1).standard_normal((300, 8))
    report = NetworkIdentifier(net.network, activation="relu", random_state=0).fit(X).report_
    assert report.exact and report.explained == 1.0 and report.n_queries >= report.explained_of + report.checked
    assert undetected_share(report.checked) <= report.undetected_share < 1.0
