"""Fits of one network and of batches of them: normal equations, priors, successive halving."""

import time

import numpy as np
import pytest

from skident.budget import time_limit
from skident.datasets import make_network
from skident.fitting.batched_fits import (
    BatchedNetworkFits,
    Halving,
    PenalizedNetworkFits,
    Prior,
    WeightedSamples,
    network_of,
    parameters_of,
    random_parameters,
    successive_halving,
)
from skident.fitting.least_squares import NetworkLeastSquares, weighted_problem
from skident.network import Architecture, FeedforwardNetwork
from skident.network.calculus import flatten_parameters
from skident.optim import (
    DenseNormalEquations,
    Ending,
    FactoredNormalEquations,
    KrylovNormalEquations,
    WorkBudget,
    batched_levenberg_marquardt,
)
from tests.references import reference_residual_jacobian

CASES = {
    "one layer": ((4, 2), "tanh", "tanh"),
    "linear output": ((4, 5, 2), "tanh", "identity"),
    "two layers, one output": ((3, 4, 1), "sigmoid", "sigmoid"),
    "three layers": ((4, 5, 3, 2), "erf", "tanh"),
    "growing": ((2, 4, 6, 3), "softplus", "identity"),
}


@pytest.fixture(params=CASES)
def case(request, rng):
    """A problem, parameters that do not solve it, and the Jacobian there by differences."""
    sizes, activation, output = CASES[request.param]
    network = make_network(sizes, activation=activation, bias_scale=0.3, random_state=0)
    network = FeedforwardNetwork(network.weights, network.biases, activation, output)
    U, Y = rng.standard_normal((17, sizes[0])), rng.standard_normal((17, sizes[-1]))

    def make(**options):
        return NetworkLeastSquares([W.shape for W in network.weights], network.activations, U, Y, **options)

    theta = flatten_parameters(network.weights, network.biases)
    return make, theta, reference_residual_jacobian(make().residual, theta), network, U, Y


def test_flatten_and_back(case):
    make, theta, _, network, *_ = case
    weights, biases = make().unflatten(theta)
    assert make().n_parameters == len(theta) == network.n_parameters
    for found, true in zip((*weights, *biases), (*network.weights, *network.biases)):
        np.testing.assert_array_equal(found, true)


def test_residual_and_cost(case):
    make, theta, _, network, U, Y = case
    np.testing.assert_allclose(make().residual(theta), network(U) - Y, atol=1e-14)
    assert make().cost(theta) == pytest.approx(np.sum((network(U) - Y) ** 2))


@pytest.mark.parametrize("chunk_bytes", [1, 2000, 2**27])
def test_normal_equations(case, chunk_bytes):
    make, theta, J, *_ = case
    problem = make(chunk_bytes=chunk_bytes)
    A, g = problem.normal_equations(theta)
    np.testing.assert_allclose(A, J.T @ J, atol=1e-8 * np.abs(J.T @ J).max())
    np.testing.assert_allclose(g, J.T @ problem.residual(theta).ravel(), atol=1e-8)


def test_products_and_gradient_without_the_matrix(case, rng):
    make, theta, J, *_ = case
    problem = make(dense_limit=0)
    model = problem.linearize(theta)
    assert isinstance(model, KrylovNormalEquations)
    np.testing.assert_allclose(model.gradient, J.T @ problem.residual(theta).ravel(), atol=1e-8)
    np.testing.assert_allclose(model.diagonal, np.sum(J**2, axis=0), atol=1e-8)
    for v in rng.standard_normal((3, len(theta))):
        np.testing.assert_allclose(model.product(v), J.T @ (J @ v), atol=1e-7)


def unit_blocks(problem, theta):
    """Of every layer, (m_l, m_{l-1} + 1, m_{l-1} + 1)."""
    return [layer.blocks for layer in problem._layer_blocks(theta)]


@pytest.mark.parametrize("chunk_bytes", [1, 2**27])
def test_unit_blocks(case, chunk_bytes):
    make, theta, J, network, *_ = case
    problem = make(chunk_bytes=chunk_bytes)
    for layer, blocks in enumerate(unit_blocks(problem, theta)):
        n_in, width = network.weights[layer].shape
        for unit, block in enumerate(blocks):
            columns = problem.offsets[layer] + width * np.arange(n_in + 1) + unit
            np.testing.assert_allclose(block, J[:, columns].T @ J[:, columns], atol=1e-8)


@pytest.mark.parametrize("damping", [1e-3, 1.0])
def test_preconditioner_inverts_the_damped_blocks(case, damping):
    make, theta, *_ = case
    problem = make(dense_limit=0)
    blocks, model = unit_blocks(problem, theta), problem.linearize(theta)
    apply = model.preconditioner(damping)
    v = np.arange(1.0, len(theta) + 1)
    expected = np.empty_like(v)
    for layer, layer_blocks in enumerate(blocks):
        width = len(layer_blocks)
        for unit, block in enumerate(layer_blocks):
            columns = problem.offsets[layer] + width * np.arange(len(block)) + unit
            damped = block + np.diag((damping + 1e-10) * model.diagonal[columns])
            expected[columns] = np.linalg.solve(damped, v[columns])
    np.testing.assert_allclose(apply(v), expected, rtol=1e-6)


def test_dense_and_matrix_free_steps_agree(case):
    make, theta, *_ = case
    dense, free = make().linearize(theta), make(dense_limit=0, inner_tol=1e-12).linearize(theta)
    assert isinstance(dense, DenseNormalEquations)
    (step, decrease), (other, predicted) = dense.solve(0.1), free.solve(0.1)
    np.testing.assert_allclose(step, other, atol=1e-8 * np.abs(step).max())
    assert predicted == pytest.approx(decrease, rel=1e-6)


def test_factored_steps_are_the_dense_ones_and_share_the_factor(case, rng):
    make, theta, *_ = case
    problem = make(dense_limit=0, factor_limit=3000)
    formed, form = [], problem.normal_equations
    problem.normal_equations = lambda x, **options: formed.append(x) or form(x, **options)
    for shift in (0.0, 1e-5, 1e-4):
        x = theta + shift * rng.standard_normal(len(theta))
        model = problem.linearize(x)
        assert isinstance(model, FactoredNormalEquations)
        model.tol = 1e-13
        expected = make().linearize(x)
        expected.matrix[np.diag_indices(len(x))] += 0.1 * (model.kept.scale / expected.scale) ** 2 if shift else 0.1
        step, _ = model.solve(0.1)
        np.testing.assert_allclose(step, expected.solve(0.0)[0], atol=1e-8 * np.abs(step).max())
    assert len(formed) == 1


def test_layers_that_read_much_have_a_block_of_their_own(rng):
    """Where inputs are independent of what the units do, it is the inverse of the layer's whole block."""
    network = make_network((250, 3, 2), output_activation="identity", random_state=0)
    weights = [np.zeros((250, 3)), network.weights[1]]
    U = rng.standard_normal((600, 250))
    problem = NetworkLeastSquares([(250, 3), (3, 2)], network.activations, U, np.zeros((600, 2)), dense_limit=0)
    theta = flatten_parameters(weights, network.biases)
    model, V = problem.linearize(theta), rng.standard_normal((251, 3))
    block = problem.normal_equations(theta)[0][:753, :753] + 1e-2 * np.diag(model.diagonal[:753])
    found = model.preconditioner(1e-2)(np.append(V, np.zeros(8)))
    np.testing.assert_allclose(block @ found[:753], V.ravel(), atol=1e-6)
    np.testing.assert_array_equal(found[753:], 0.0)


def test_overflow_is_a_cost_not_a_warning(rng):
    """A step too long is refused by its cost; nothing is printed."""
    network = make_network((3, 4, 1), activation="quadratic", output_activation="quadratic", random_state=0)
    problem = NetworkLeastSquares([(3, 4), (4, 1)], network.activations, rng.standard_normal((5, 3)), np.zeros((5, 1)))
    theta = 1e100 * flatten_parameters(network.weights, network.biases)
    assert not np.isfinite(problem.cost(theta))


@pytest.mark.parametrize(("widths", "activation"), [((3, 1), "tanh"), ((4, 3, 2), "gelu"), ((2,), "sin")])
def test_normal_equations_are_those_of_every_network_alone(widths, activation):
    rng, architecture = np.random.RandomState(0), Architecture(widths, activation)
    U, Y, weight = rng.standard_normal((40, 5)), rng.standard_normal((40, widths[-1])), rng.randint(1, 4, 40)
    x = random_parameters(5, architecture, 3, rng)
    fits = BatchedNetworkFits(architecture, WeightedSamples(U, Y, weight.astype(float)), chunk_bytes=8 * 3 * 200)
    matrix, gradient = fits.normal_equations(x)
    cost = fits.cost(x)
    for b in range(3):  # weights are repetitions of rows
        alone = NetworkLeastSquares(
            fits.shapes, architecture.activations, np.repeat(U, weight, axis=0), np.repeat(Y, weight, axis=0)
        )
        A, g = alone.normal_equations(x[b])
        np.testing.assert_allclose(matrix[b], A, atol=1e-12)
        np.testing.assert_allclose(gradient[b], g, atol=1e-12)
        assert cost[b] == pytest.approx(alone.cost(x[b]))


def test_parameters_and_networks_are_the_same_thing():
    network = make_network((3, 4, 2), output_activation="identity", random_state=1)
    assert network_of(parameters_of(network), 3, Architecture.of(network)) == network


def test_starts_have_first_layers_of_all_sizes():
    x = random_parameters(4, Architecture((50, 1)), 4, np.random.RandomState(0))
    sizes = np.std(x[:, :200], axis=1)
    np.testing.assert_allclose(sizes / sizes[0], 0.1 ** (np.arange(4) / 3), rtol=0.2)


def test_rows_count_weights():
    rows = WeightedSamples(np.zeros((2, 1)), np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([0.5, 2.0]))
    assert (rows.n_values, rows.total) == (5.0, 0.5 * 5 + 2 * 9)
    assert WeightedSamples(rows.U, rows.Y).n_values == 4


RNG = np.random.RandomState(0)
U = RNG.standard_normal((60, 3))
TRUTH = make_network((3, 2, 2), bias_scale=0.3, output_activation="identity", random_state=0)
ROWS = WeightedSamples(U, TRUTH(U) + 0.1 * RNG.standard_normal((60, 2)))
PRIOR = Prior((0.3, 0.5), (0.1, 7.0), 0.01)


def test_cost_and_gradient_have_the_penalty_of_all_but_the_last_shifts():
    architecture = Architecture.of(TRUTH)
    fits, plain = PenalizedNetworkFits(architecture, ROWS, PRIOR), BatchedNetworkFits(architecture, ROWS)
    x = random_parameters(3, architecture, 2, np.random.RandomState(1))
    wanted = 0.01 * (np.sum(x[:, :6] ** 2, axis=1) / 0.3 + np.sum(x[:, 6:8] ** 2, axis=1) / 0.1)
    wanted += 0.01 * np.sum(x[:, 8:12] ** 2, axis=1) / 0.5
    np.testing.assert_allclose(fits.cost(x) - plain.cost(x), wanted, rtol=1e-10)
    step = 1e-6 * np.eye(x.shape[1])
    slopes = [(fits.cost(x[:1] + d) - fits.cost(x[:1] - d))[0] / 4e-6 for d in step]
    np.testing.assert_allclose(fits.normal_equations(x)[1][0], slopes, rtol=1e-5, atol=1e-6)


def test_a_prior_is_like_a_network_and_draws_fits_to_0():
    prior = Prior.like(TRUTH, 0.01)
    assert prior.noise == 0.01 and len(prior.weights) == len(prior.biases) == 2
    np.testing.assert_allclose(prior.weights, [np.median(np.mean(W**2, axis=0)) for W in TRUTH.weights])
    architecture, start = Architecture.of(TRUTH), parameters_of(TRUTH)[None]
    sizes = []
    for noise in (1e-4, 1.0):
        fits = PenalizedNetworkFits(architecture, ROWS, Prior(prior.weights, prior.biases, noise))
        sizes.append(np.linalg.norm(batched_levenberg_marquardt(fits, start, Ending(max_iter=50, ftol=1e-8)).x))
    assert sizes[1] < 0.9 * sizes[0]


def test_a_broad_prior_allows_pre_activations_of_variance_four():
    prior = Prior.broad(Architecture((6, 3, 1), "tanh"), 5, 0.1)
    rng = np.random.RandomState(0)
    first = np.sqrt(prior.weights[0]) * rng.standard_normal((5, 20_000))
    np.testing.assert_allclose(np.var(rng.standard_normal((20_000, 5)) @ first[:, :50]), 4.0, rtol=0.3)
    units = np.tanh(rng.standard_normal((20_000, 6)))
    second = np.sqrt(prior.weights[1]) * rng.standard_normal((6, 2000))
    np.testing.assert_allclose(np.var(units @ second), 4.0, rtol=0.1)
    assert prior.penalty([(5, 6), (6, 3), (3, 1)])[-1] == 0.0


def test_the_mean_of_the_prior_is_where_a_fit_without_rows_that_tell_ends():
    architecture, center = Architecture((2, 1)), np.arange(1.0, 10.0)
    rows = WeightedSamples(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros(3))
    fits = PenalizedNetworkFits(architecture, rows, Prior.broad(architecture, 2, 1.0), center)
    matrix, gradient = fits.normal_equations(center[None])
    assert fits.cost(center[None])[0] == 0.0 and not gradient.any()
    np.testing.assert_array_equal(matrix[0], np.diag(fits.penalty))


@pytest.fixture
def fits():
    truth = make_network((3, 2, 1), output_activation="identity", random_state=0)
    U = np.random.RandomState(1).standard_normal((80, 3))
    return BatchedNetworkFits(Architecture((2, 1)), WeightedSamples(U, truth(U)))


def test_the_best_come_first_and_as_many_as_asked_for(fits):
    x = random_parameters(3, Architecture((2, 1)), 6, np.random.RandomState(0))
    ends, cost = successive_halving(fits, x, Halving(rounds=((3, 4), (3, 2))))
    assert ends.shape == (2, x.shape[1]) and cost[0] <= cost[1] < fits.cost(x).min()
    np.testing.assert_allclose(fits.cost(ends), cost)


def test_it_ends_once_one_is_good(fits):
    x = random_parameters(3, Architecture((2, 1)), 6, np.random.RandomState(0))
    ends, cost = successive_halving(fits, x, Halving(rounds=((200, 6), (1, 1)), target=1e-20))
    assert cost[0] <= 1e-20 and len(ends) == 6


def test_no_step_is_made_after_the_deadline(fits):
    x = random_parameters(3, Architecture((2, 1)), 2, np.random.RandomState(0))
    ends, cost = successive_halving(fits, x, Halving(budget=WorkBudget(0.0)))
    np.testing.assert_array_equal(np.sort(cost), np.sort(fits.cost(x)))


def test_the_time_of_a_step_is_estimated_by_its_work(rng):
    """A step of 10,000 rows and 200 parameters takes milliseconds: it is begun with two seconds left."""
    network, U = (
        make_network((10, 16, 1), output_activation="identity", random_state=0),
        rng.standard_normal((10_000, 10)),
    )
    problem = weighted_problem(network, U, network(U), 1.0)
    with time_limit(time.perf_counter() + 2.0, "the test's time is over"):
        problem.normal_equations(flatten_parameters(network.weights, network.biases))
