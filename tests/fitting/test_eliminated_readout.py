import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.eliminated_readout import EliminatedReadout, fit_hidden_layers
from skident.network.calculus import forward

RIDGE = 1e-7


@pytest.fixture(params=[((4, 5, 3, 1), "tanh"), ((3, 4, 2), "sigmoid"), ((3, 4, 2, 3), "erf")], ids=str)
def case(request, rng):
    """A network, inputs, and answers of no such network."""
    sizes, activation = request.param
    network = make_network(sizes, activation=activation, output_activation="identity", shift_scale=0.3, random_state=0)
    return network, rng.standard_normal((40, sizes[0])), rng.standard_normal((40, sizes[-1]))


def slow_cost(problem, theta, U, Y):
    """The ridge regression on what the output layer reads, as one stacked least-squares problem."""
    network = problem.network(theta)
    H = np.column_stack(
        [forward(network.weights[:-1], network.biases[:-1], network.activations[:-1], U), np.ones(len(U))]
    )
    stacked = np.vstack([H, np.sqrt(RIDGE * len(U)) * np.eye(H.shape[1])])
    wanted = np.vstack([Y, np.zeros((H.shape[1], Y.shape[1]))])
    readout = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    return np.sum((stacked @ readout - wanted) ** 2)


def test_the_cost_is_least_over_the_output_layer(case):
    network, U, Y = case
    problem = EliminatedReadout(network, U, Y)
    theta = problem.flatten(network)
    np.testing.assert_allclose(problem.cost(theta), slow_cost(problem, theta, U, Y), rtol=1e-10)


def test_gradient_by_differences(case):
    network, U, Y = case
    problem = EliminatedReadout(network, U, Y)
    theta, h = problem.flatten(network), 1e-5
    steps = h * np.eye(len(theta))
    slopes = [(problem.cost(theta + e) - problem.cost(theta - e)) / (4.0 * h) for e in steps]  # of half the cost
    model = problem.linearise(theta)
    np.testing.assert_allclose(model.gradient, slopes, atol=1e-6 * np.abs(slopes).max())


def test_blocks_of_rows_do_not_change_the_model(case):
    network, U, Y = case
    at_once, in_blocks = EliminatedReadout(network, U, Y), EliminatedReadout(network, U, Y, chunk_bytes=5000)
    assert in_blocks.chunk < len(U)
    theta = at_once.flatten(network)
    one, other = at_once.linearise(theta), in_blocks.linearise(theta)
    np.testing.assert_allclose(one.matrix, other.matrix, atol=1e-10)
    np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-10 * np.abs(one.gradient).max())


def test_a_cost_that_is_not_finite_is_infinite(case):
    network, U, Y = case
    problem = EliminatedReadout(network, U, Y)
    assert problem.cost(np.full(problem.n_parameters, np.nan)) == np.inf


def test_a_fit_from_nearby_and_one_without_time(rng):
    truth = make_network((4, 5, 3, 2), output_activation="identity", shift_scale=0.3, random_state=1)
    rough = truth.with_parameters([W + 0.1 * rng.standard_normal(W.shape) for W in truth.weights], truth.biases)
    U = rng.standard_normal((300, 4))
    Y = 100.0 + truth(U) * [1.0, 1e-3]
    fitted, misfit = fit_hidden_layers(rough, U, Y)
    late, misfit_of_late = fit_hidden_layers(rough, U, Y, deadline=0.0)
    errors = (fitted(U) - Y) / Y.std(axis=0)
    np.testing.assert_allclose(misfit, np.sqrt(np.mean(errors**2)), rtol=1e-6)
    assert misfit < 5e-3 and misfit < 0.3 * misfit_of_late and late.layer_widths == truth.layer_widths
