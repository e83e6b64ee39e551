import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.least_squares import NetworkLeastSquares
from skident.network import FeedforwardNetwork
from skident.optim import DenseNormalEquations, FactoredNormalEquations, KrylovNormalEquations
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
    network = make_network(sizes, activation=activation, shift_scale=0.3, random_state=0)
    network = FeedforwardNetwork(network.weights, network.biases, activation, output)
    U, Y = rng.standard_normal((17, sizes[0])), rng.standard_normal((17, sizes[-1]))

    def make(**options):
        return NetworkLeastSquares([W.shape for W in network.weights], network.activations, U, Y, **options)

    theta = make().flatten(network.weights, network.biases)
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
    model = problem.linearise(theta)
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
    blocks, model = unit_blocks(problem, theta), problem.linearise(theta)
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
    dense, free = make().linearise(theta), make(dense_limit=0, inner_tol=1e-12).linearise(theta)
    assert isinstance(dense, DenseNormalEquations)
    (step, decrease), (other, predicted) = dense.solve(0.1), free.solve(0.1)
    np.testing.assert_allclose(step, other, atol=1e-8 * np.abs(step).max())
    assert predicted == pytest.approx(decrease, rel=1e-6)


def test_factored_steps_are_the_dense_ones_and_share_the_factor(case, rng):
    make, theta, *_ = case
    problem = make(dense_limit=0, factor_limit=3000)
    formed, form = [], problem.normal_equations
    problem.normal_equations = lambda x, *others: formed.append(x) or form(x, *others)
    for shift in (0.0, 1e-5, 1e-4):
        x = theta + shift * rng.standard_normal(len(theta))
        model = problem.linearise(x)
        assert isinstance(model, FactoredNormalEquations)
        model.tol = 1e-13
        expected = make().linearise(x)
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
    theta = problem.flatten(weights, network.biases)
    model, V = problem.linearise(theta), rng.standard_normal((251, 3))
    block = problem.normal_equations(theta)[0][:753, :753] + 1e-2 * np.diag(model.diagonal[:753])
    found = model.preconditioner(1e-2)(np.append(V, np.zeros(8)))
    np.testing.assert_allclose(block @ found[:753], V.ravel(), atol=1e-6)
    np.testing.assert_array_equal(found[753:], 0.0)


def test_overflow_is_a_cost_not_a_warning(rng):
    """A step too long is refused by its cost; nothing is printed."""
    network = make_network((3, 4, 1), activation="quadratic", output_activation="quadratic", random_state=0)
    problem = NetworkLeastSquares([(3, 4), (4, 1)], network.activations, rng.standard_normal((5, 3)), np.zeros((5, 1)))
    theta = 1e100 * problem.flatten(network.weights, network.biases)
    assert not np.isfinite(problem.cost(theta))
