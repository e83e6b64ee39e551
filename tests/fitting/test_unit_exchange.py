"""Hidden layers whose units are exchanged: grow and prune, and populations of fits."""

import time

import numpy as np
import pytest

from skident.fitting import grow_and_prune as module
from skident.fitting.batched_fits import BatchedNetworkFits, WeightedSamples, random_parameters
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.grow_and_prune import GrowPruneLimits, grow_and_prune
from skident.fitting.unit_replacement import ReplacementOptions, replace_units
from skident.network import Architecture, FeedforwardNetwork, get_activation
from skident.optim import WorkBudget


@pytest.fixture
def problem(rng):
    return DownstreamOfKnownUnits(
        rng.standard_normal((9, 4)), 3.0 + rng.standard_normal((9, 2)), get_activation("tanh"), norms_free=True
    )


@pytest.fixture
def theta(problem, rng):
    return problem.start(rng.standard_normal(4), 3, rng) + 0.1 * rng.standard_normal(4 + 4 + 5 * 3 + 4 * 2)


def test_the_jacobian_is_that_of_differences(problem, theta):
    step = 1e-6
    moved = [problem.residual(theta + d) - problem.residual(theta - d) for d in step * np.eye(len(theta))]
    expected = np.array([m.ravel() for m in moved]).T / (2.0 * step)
    np.testing.assert_allclose(problem.jacobian(theta), expected, atol=1e-8)


def test_residuals_are_those_of_the_network(problem, theta):
    shifts, stretch, W, V = problem.split(theta)
    network = FeedforwardNetwork([np.diag(stretch), W[:-1], V[:-1]], [shifts, W[-1], V[-1]], "tanh")
    np.testing.assert_allclose(problem.residual(theta), network(problem.Z) - problem.Y, atol=1e-13)
    np.testing.assert_array_equal(problem.join(*problem.split(theta)), theta)


@pytest.mark.parametrize(("single", "tol"), [(False, 1e-12), (True, 1e-5)])
def test_normal_equations_are_those_of_the_jacobian(problem, theta, single, tol):
    J, (A, gradient) = problem.jacobian(theta), problem.normal_equations(theta, single=single)
    np.testing.assert_allclose(A, J.T @ J, atol=tol * np.abs(A).max())
    np.testing.assert_allclose(gradient, J.T @ problem.residual(theta).ravel(), atol=tol * np.abs(gradient).max())


def test_what_may_not_move_stays(problem, theta):
    held = DownstreamOfKnownUnits(problem.Z, problem.Y, problem.activation)
    step, predicted = held.linearize(theta).solve(1e-3)
    assert predicted > 0.0 and np.all(step[4:8] == 0.0) and np.all(step[:4] != 0.0)


def test_places_of_units(problem, theta):
    _, _, W, V = problem.split(theta)
    np.testing.assert_array_equal(theta[problem.unit_indices(theta)], np.hstack([W.T, V[:-1]]))


TANH = get_activation("tanh")


def layer(rng, m_1=5, m_2=6, m_L=1, n=300):
    """Problems, held and freed, of a random layer behind units whose shifts and lengths are a little off."""
    Z, W = 2.0 * rng.standard_normal((n, m_1)), 1.5 * rng.standard_normal((m_1, m_2))
    V, c, shifts = rng.standard_normal((m_2, m_L)), rng.standard_normal(m_2), 0.4 * rng.standard_normal(m_1)
    Y = np.tanh(np.tanh(Z + shifts) @ W + c) @ V
    Z = Z * (1.0 + 1e-6 * rng.standard_normal(m_1))
    return [DownstreamOfKnownUnits(Z, Y, TANH, norms_free=free) for free in (False, True)], (shifts, W)


@pytest.mark.parametrize("m_L", [1, 2])
def test_layers_are_found_with_the_shifts_before_them(m_L):
    found = 0
    for seed in range(4):
        problems, (shifts, W) = layer(np.random.RandomState(seed), m_L=m_L)
        theta, misfit, n_cycles = grow_and_prune(*problems, np.zeros(5), 6, np.random.RandomState(seed))
        assert n_cycles > 0 or misfit < 1e-9
        if misfit < 1e-9:
            found += 1
            parts = problems[0].split(theta)
            np.testing.assert_allclose(parts[0], shifts, atol=1e-6)
            likeness = np.abs(np.corrcoef(W.T, parts[2][:-1].T)[:6, 6:])
            np.testing.assert_allclose(likeness.max(axis=1), 1.0, atol=1e-6)
    assert found >= 3


def test_costs_of_removals_are_those_of_constrained_least_squares(rng):
    (problem, _), _ = layer(rng, n=80)
    theta = problem.start(np.zeros(5), 4, rng)
    J, r = problem.jacobian(theta), problem.residual(theta)
    _, _, W, V = problem.split(theta)
    G = np.tanh(problem.features(theta) @ W)
    for k, cost in enumerate(module._losses(problem, theta)):
        left = (r - G[:, k, None] * V[k]).ravel()
        others = np.delete(J, problem.unit_indices(theta)[k], axis=1)
        step = np.linalg.lstsq(others, -left, rcond=None)[0]
        assert cost == pytest.approx(np.sum((left + others @ step) ** 2), rel=1e-3)


@pytest.mark.usefixtures("own_seconds")
def test_a_deadline_ends_it(rng):
    problems, _ = layer(rng, 8, 12)
    began = time.perf_counter()
    _, misfit, n_cycles = grow_and_prune(*problems, np.zeros(8), 12, rng, GrowPruneLimits(deadline=began))
    assert n_cycles == 0 and misfit > 1e-9 and time.perf_counter() - began < 1.0


def test_cycles_are_counted_and_told(rng):
    problems, _ = layer(rng, 8, 12)
    told = []
    *_, n_cycles = grow_and_prune(*problems, np.zeros(8), 3, rng, GrowPruneLimits(n_cycles=2, progress=told.append))
    assert n_cycles == 2 and told == [1, 2]


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
