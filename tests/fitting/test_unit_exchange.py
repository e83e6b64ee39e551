"""Populations of fits whose units are exchanged, and least squares over a layer behind known units."""

import numpy as np
import pytest

from skident.fitting.batched_fits import BatchedNetworkFits, WeightedSamples, random_parameters
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.unit_replacement import ReplacementOptions, _removal_losses, replace_units
from skident.network import Architecture, FeedforwardNetwork, get_activation
from skident.optim import WorkBudget
from tests.references import reference_residual_jacobian


@pytest.fixture
def problem(rng):
    Z, Y = rng.standard_normal((9, 4)), 3.0 + rng.standard_normal((9, 2))
    return DownstreamOfKnownUnits(Z, Y, get_activation("tanh"))


@pytest.fixture
def theta(problem, rng):
    parts = rng.standard_normal(4), 1.0 + 0.1 * rng.standard_normal(4), rng.standard_normal((5, 3))
    return problem.join(*parts, rng.standard_normal((4, 2)))


def test_residuals_are_those_of_the_network(problem, theta):
    shifts, stretch, W, V = problem.split(theta)
    network = FeedforwardNetwork([np.diag(stretch), W[:-1], V[:-1]], [shifts, W[-1], V[-1]], "tanh")
    np.testing.assert_allclose(problem.residual(theta), network(problem.Z) - problem.Y, atol=1e-13)
    np.testing.assert_array_equal(problem.join(*problem.split(theta)), theta)


@pytest.mark.parametrize(("single", "tol"), [(False, 1e-7), (True, 1e-5)])
def test_normal_equations_are_those_of_the_jacobian(problem, theta, single, tol):
    J = reference_residual_jacobian(problem.residual, theta)
    A, gradient = problem.normal_equations(theta, single=single)
    np.testing.assert_allclose(A, J.T @ J, atol=tol * np.abs(A).max())
    np.testing.assert_allclose(gradient, J.T @ problem.residual(theta).ravel(), atol=tol * np.abs(gradient).max())


def test_costs_of_removals_are_those_of_constrained_least_squares(rng):
    J, r = rng.standard_normal((40, 12)), rng.standard_normal((3, 40))
    units = np.arange(12).reshape(3, 4)
    for left, fixed, cost in zip(r, units, _removal_losses(J, J.T @ J, r, units), strict=True):
        others = np.delete(J, fixed, axis=1)
        step = np.linalg.lstsq(others, -left, rcond=None)[0]
        assert cost == pytest.approx(np.sum((left + others @ step) ** 2), rel=1e-9)


def steep(widths, n, seed, n_inputs=4):
    rng = np.random.RandomState(seed)
    sizes = (n_inputs, *widths)
    weights = [
        (5.0 if c != widths[-1] else 1.0) * rng.standard_normal((a, c)) / np.sqrt(a) for a, c in zip(sizes, widths)
    ]
    truth = FeedforwardNetwork(weights, [rng.standard_normal(c) for c in widths], "tanh")
    U = rng.standard_normal((n, n_inputs))
    return WeightedSamples(U, truth(U)), rng


@pytest.mark.parametrize("widths", [(5, 1), (4, 2), (4, 3, 1)])
def test_steep_networks_are_met_where_plain_fits_are_not(widths):
    rows, rng = steep(widths, 500, seed=1)
    architecture = Architecture(widths)
    x = random_parameters(4, architecture, 6, rng)
    good = 1e-20 * rows.total
    found, cost = replace_units(rows, architecture, x, rng, ReplacementOptions(target=good))
    assert cost[0] <= good and np.all(np.diff(cost) >= 0)
    np.testing.assert_allclose(BatchedNetworkFits(architecture, rows).cost(found), cost, rtol=1e-6, atol=good)


def test_costs_never_rise_and_weights_count():
    rows, rng = steep((3, 1), 200, seed=2)
    noisy = WeightedSamples(rows.U, rows.Y + 0.1 * rng.standard_normal(rows.Y.shape), rng.uniform(0.5, 2.0, 200))
    architecture = Architecture((3, 1))
    x = random_parameters(4, architecture, 3, rng)
    before = BatchedNetworkFits(architecture, noisy).cost(x)
    _, cost = replace_units(noisy, architecture, x, rng, ReplacementOptions(n_generations=2, n_children=2))
    assert np.all(cost <= np.sort(before))


def test_a_time_that_is_over_is_over():
    rows, rng = steep((3, 1), 100, seed=3)
    x = random_parameters(4, Architecture((3, 1)), 2, rng)
    found, _ = replace_units(rows, Architecture((3, 1)), x, rng, ReplacementOptions(budget=WorkBudget(0.0)))
    assert {tuple(one) for one in found} == {tuple(one) for one in x}
