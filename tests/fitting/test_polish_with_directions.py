"""Polish of networks whose first layer saturates: exact directions first, then scales, biases and further layers."""

import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.fitting import polish_with_directions as module
from skident.fitting.directions_at_saturation import correct_directions
from skident.fitting.least_squares import weighted_problem
from skident.fitting.polish_with_directions import directions_are_free, polish_with_directions
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork
from skident.oracle import Budget, NotIdentified, Oracle
from tests.references import reference_residual_jacobian


def planted(widths, activation="tanh", seed=0):
    return make_network(widths, activation=activation, output_activation="identity", bias_scale=0.3, random_state=seed)


def bent(network, size, rng):
    """A network whose parameters are off by about `size`."""
    return network.with_parameters(
        [W + size * rng.standard_normal(W.shape) for W in network.weights],
        [b + size * rng.standard_normal(b.shape) for b in network.biases],
    )


def direction_error(found, true):
    """The largest distance between unit vectors of columns."""
    return np.abs(found / np.linalg.norm(found, axis=0) - true / np.linalg.norm(true, axis=0)).max()


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("widths", [(30, 9, 4, 5), (12, 12, 8, 3), (20, 7, 1), (15, 6, 5, 4, 2)])
def test_directions_become_exact(widths, activation, rng):
    network, size = planted(widths, activation), 1e-5
    start, oracle = bent(network, size, rng), Oracle(network, widths[0])
    for seed in range(3):
        W = correct_directions(oracle, start.weights[0], start.biases[0], activation, np.random.RandomState(seed))
        condition = np.linalg.cond(network.weights[0])
        assert direction_error(W, network.weights[0]) < 1e-11 * condition  # start 1e-5
        norms = np.linalg.norm(W, axis=0) / np.linalg.norm(start.weights[0], axis=0)
        assert np.abs(norms - 1.0).max() < size * condition


def test_a_unit_that_is_missing_is_reported(rng):
    network = planted((20, 8, 6, 5))
    weights, biases = network.weights[0][:, 1:], network.biases[0][1:]
    with pytest.raises(NotIdentified, match="one is missing"):
        correct_directions(Oracle(network, 20), weights, biases, "tanh", rng)


def test_a_unit_without_effect_is_reported(rng):
    network = planted((20, 4, 3))
    outer = network.weights[1].copy()
    outer[2] = 0.0
    network = network.with_parameters([network.weights[0], outer], network.biases)
    with pytest.raises(NotIdentified, match="no effect"):
        correct_directions(Oracle(network, 20), network.weights[0], network.biases[0], "tanh", rng)


@pytest.mark.parametrize("weight", [1.0, np.array([1.0, 2.0, 0.5])])
def test_least_squares_with_a_scaled_first_layer(weight, rng):
    network = FeedforwardNetwork(
        [np.diag(rng.standard_normal(4)), rng.standard_normal((4, 5)), rng.standard_normal((5, 3))],
        [rng.standard_normal(m) for m in (4, 5, 3)],
        "tanh",
    )
    U, Y = rng.standard_normal((17, 4)), rng.standard_normal((17, 3))
    problem = weighted_problem(network, U, Y, weight, scaled_first=True)
    theta = problem.flatten(network.weights, network.biases)
    assert len(theta) == problem.n_parameters == network.n_parameters - 4 * 3
    np.testing.assert_allclose(problem.residual(theta), weight * (network(U) - Y), atol=1e-13)
    J = reference_residual_jacobian(problem.residual, theta)
    A, g = problem.normal_equations(theta)
    np.testing.assert_allclose(A, J.T @ J, atol=1e-7 * np.abs(A).max())
    np.testing.assert_allclose(g, J.T @ problem.residual(theta).ravel(), atol=1e-7 * np.abs(g).max())
    steps = []
    for limits in ({}, {"dense_limit": 0, "factor_limit": 100}, {"dense_limit": 0}):
        problem = weighted_problem(network, U, Y, weight, scaled_first=True, **limits)
        problem.inner_tol = 1e-12
        steps.append(problem.linearize(theta).solve(0.1)[0])
    np.testing.assert_allclose(steps[1], steps[0], atol=1e-4 * np.abs(steps[0]).max())
    np.testing.assert_allclose(steps[2], steps[0], atol=1e-8 * np.abs(steps[0]).max())


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("size", [1e-4, 1e-7])
@pytest.mark.parametrize("widths", [(30, 9, 4, 5), (12, 12, 8, 3), (20, 7, 1)])
def test_to_rounding(widths, size, activation, rng):
    network = planted(widths, activation)
    oracle, log = Oracle(network, widths[0]), StageLog()
    found, residual, sample = polish_with_directions(oracle, bent(network, size, rng), np.random.RandomState(0), log)
    U = rng.standard_normal((500, widths[0]))
    assert residual < 1e-13
    assert np.abs(found(U) - network(U)).max() < 1e-12 * np.abs(network(U)).max()
    assert parameter_error(network, found) < 1e-9
    np.testing.assert_allclose(sample.outputs, network(sample.inputs), atol=1e-12)
    assert sum(stage.queries for stage in log.stages) == oracle.n_queries


def test_it_is_refused_where_unknown_units_move(rng):
    network = planted((20, 8, 6, 5))
    start = network.with_parameters(
        [network.weights[0][:, 1:], network.weights[1][1:], network.weights[2]],
        [network.biases[0][1:], *network.biases[1:]],
    )
    assert polish_with_directions(Oracle(network, 20), start, np.random.RandomState(0), StageLog()) is None


def test_an_exhausted_budget_keeps_the_network(rng):
    network = planted((30, 9, 4, 5))
    start, oracle = bent(network, 1e-6, rng), Oracle(network, 30, budget=Budget(max_queries=60))
    found, residual, sample = polish_with_directions(oracle, start, np.random.RandomState(0), StageLog())
    assert found is start
    assert residual == np.inf
    assert sample is None
    assert "60" in oracle.exhausted


def test_where_it_applies(monkeypatch):
    network = planted((30, 9, 4, 5))
    assert not directions_are_free(Oracle(network, 30), network, None)  # few parameters
    monkeypatch.setattr(module, "DENSE_PARAMETERS", 50)
    assert directions_are_free(Oracle(network, 30), network, None)
    assert not directions_are_free(Oracle(network, 30), network, 1e-3)
    assert not directions_are_free(
        Oracle(network, 30, input_range=(-5.0 * np.ones(30), 5.0 * np.ones(30))), network, None
    )
    for other in (planted((5, 9, 4, 5)), planted((30, 9, 4, 5), "gelu")):
        assert not directions_are_free(Oracle(other, other.n_inputs), other, None)
