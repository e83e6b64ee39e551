import numpy as np
import pytest
import scipy.optimize
import torch

from skident.datasets import make_network
from skident.identification.hessians.module import CompletionModule
from skident.identification.hessians.scales_and_shifts import (
    CompletionProblem,
    fit_ridge_units,
    mixing_matrices,
    solve_completion,
)
from skident.network import get_activation
from tests.references import reference_completion, reference_residual_jacobian

# widths, hidden and output activation, whether the last layer is free
CASES = {
    "one layer": ((3,), "tanh", "tanh", False),
    "two layers": ((4, 2), "tanh", "tanh", False),
    "two layers, free": ((4, 2), "sigmoid", "identity", True),
    "three layers": ((5, 3, 2), "erf", "tanh", False),
    "three layers, free": ((5, 3, 1), "tanh", "softplus", True),
    "four layers": ((5, 4, 3, 2), "tanh", "identity", False),
}


@pytest.fixture(params=CASES)
def case(request, rng):
    """A problem with random parameters, features and answers."""
    widths, hidden, output, free = CASES[request.param]
    activations = [get_activation(hidden)] * (len(widths) - 1) + [get_activation(output)]
    n_mixings = len(widths) - 1 - free
    mixings = [rng.standard_normal(widths[i : i + 2]) for i in range(n_mixings)]
    problem = CompletionProblem(list(widths), activations, mixings, free_readout=free)
    omega = rng.standard_normal(problem.n_parameters)
    return problem, omega, rng.standard_normal((19, widths[0])), rng.standard_normal((19, widths[-1]))


def answers(problem, omega, Z):
    lists = problem.to_lists(omega)
    return np.stack([reference_completion(lists, problem.mixings, problem.activations, z) for z in Z])


def test_residual_is_equation_18(case):
    problem, omega, Z, Y = case
    np.testing.assert_allclose(problem.residual(omega, Z, Y), answers(problem, omega, Z) - Y, atol=1e-12)


def test_number_of_parameters(case):
    problem, omega, *_ = case
    m = problem.widths
    if problem.free_readout:
        expected = 3 * sum(m[:-2]) + 2 * m[-2] + m[-2] * m[-1] + m[-1]
    else:
        expected = 3 * sum(m) - m[-1]
    assert problem.n_parameters == expected == len(omega)


def test_lists_and_back(case):
    problem, omega, *_ = case
    np.testing.assert_array_equal(problem.from_lists(problem.to_lists(omega)), omega)


@pytest.mark.parametrize("chunk_bytes", [1, 2**27])
def test_normal_equations(case, chunk_bytes):
    problem, omega, Z, Y = case
    J = reference_residual_jacobian(lambda w: problem.residual(w, Z, Y), omega)
    A, g = problem.normal_equations(omega, Z, Y, chunk_bytes=chunk_bytes)
    np.testing.assert_allclose(A, J.T @ J, atol=1e-7 * np.abs(A).max())
    np.testing.assert_allclose(g, J.T @ problem.residual(omega, Z, Y).ravel(), atol=1e-7 * np.abs(g).max())


def test_the_paper_s_start(case):
    problem, *_ = case
    lists = problem.to_lists(problem.initial())
    assert all(np.all(T == 1) for T in lists["scales"] + lists["rescales"])
    assert all(np.all(tau == 0) for tau in lists["shifts"])


def test_given_start(case):
    problem, *_ = case
    scales, shifts = np.arange(1.0, problem.widths[0] + 1), -np.arange(1.0, problem.widths[0] + 1)
    lists = problem.to_lists(problem.initial(scales, shifts))
    np.testing.assert_array_equal(lists["scales"][0], scales)
    np.testing.assert_array_equal(lists["shifts"][0], shifts)


def test_readout_by_least_squares(case):
    problem, omega, Z, Y = case
    fitted = problem.with_readout(omega, Z, Y)
    if not problem.free_readout:
        np.testing.assert_array_equal(fitted, omega)
    elif problem.activations[-1].name == "identity":
        J = reference_residual_jacobian(lambda w: problem.residual(w, Z, Y), fitted)
        last = [problem.slices[key, len(problem.widths) - 1] for key in ("tau", "W")]
        gradient = J.T @ problem.residual(fitted, Z, Y).ravel()
        assert all(np.abs(gradient[where]).max() < 1e-7 for where in last)


def test_torch_module_computes_the_same(case):
    problem, omega, Z, _ = case
    module = CompletionModule(
        problem.widths,
        problem.mixings,
        problem.activations[0].name if len(problem.widths) > 1 else "tanh",
        problem.activations[-1].name,
        start=problem.to_lists(omega),
    )
    with torch.no_grad():
        Y = module(torch.as_tensor(Z)).numpy()
    np.testing.assert_allclose(Y, problem.residual(omega, Z, 0.0), atol=1e-12)
    np.testing.assert_array_equal(problem.from_lists(module.to_lists()), omega)
    assert sum(p.numel() for p in module.parameters()) == problem.n_parameters


def test_torch_gradient_is_ours(case):
    problem, omega, Z, Y = case
    hidden, output = problem.activations[0].name, problem.activations[-1].name
    module = CompletionModule(problem.widths, problem.mixings, hidden, output, start=problem.to_lists(omega))
    torch.sum((module(torch.as_tensor(Z)) - torch.as_tensor(Y)) ** 2).backward()
    lists = {name: [p.grad.numpy() for p in getattr(module, name)] for name in ("scales", "shifts", "rescales")}
    if problem.free_readout:
        lists["readout"] = module.readout.grad.numpy()
    _, g = problem.normal_equations(omega, Z, Y)
    np.testing.assert_allclose(problem.from_lists(lists), 2 * g, atol=1e-10 * np.abs(g).max())


def test_solved_from_nearby(case, rng):
    problem, omega, Z, _ = case
    Z = rng.standard_normal((200, Z.shape[1]))
    omega = problem.initial() + 0.2 * omega
    Y = problem.residual(omega, Z, 0.0)
    start = omega + 1e-2 * rng.standard_normal(len(omega))
    result = solve_completion(problem, Z, Y, start)
    assert np.sqrt(result.cost / np.sum(Y**2)) < 1e-12


# -- mixings -----------------------------------------------------------------------------------------------------------


def test_mixings_of_a_network_are_those_of_its_entangled_weights(rng):
    V = make_network((8, 6, 4, 2), random_state=0).entangled_weights(np.zeros(8))
    X = rng.standard_normal((50, 8)) + 100.0
    mixings = mixing_matrices([X @ v for v in V])
    for left, right, C in zip(V[:-1], V[1:], mixings):
        np.testing.assert_allclose(C, np.linalg.pinv(left) @ right, atol=1e-9)


def test_mixings_of_one_block():
    assert mixing_matrices([np.ones((2, 5))]) == []


def test_too_few_rows_for_the_mixing(rng):
    with pytest.raises(ValueError, match="5 samples do not determine how 5 features .* at least 6"):
        mixing_matrices([rng.standard_normal((5, 5)), rng.standard_normal((5, 2))])


# -- variable projection -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus"])
def test_ridge_units_end_where_scipy_does(rng, activation, n_outputs):
    """On noisy answers, so that the minimum is not zero."""
    g, n, m = get_activation(activation), 80, 3
    Z = rng.standard_normal((n, m))
    scales, shifts = np.array([0.8, 1.3, 1.7]), np.array([-0.4, 0.1, 0.6])
    Y = g(Z * scales + shifts) @ rng.standard_normal((m, n_outputs)) + 0.5 + 1e-2 * rng.standard_normal((n, n_outputs))

    def residual(w):
        Phi = np.hstack([np.ones((n, 1)), g(Z * w[:m] + w[m:])])
        return (Phi @ np.linalg.lstsq(Phi, Y, rcond=None)[0] - Y).ravel()

    start = 1.05 * scales, shifts + 0.05
    expected = scipy.optimize.least_squares(residual, np.concatenate(start), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    network, result = fit_ridge_units(Z, Y, g, *start)
    assert result.cost == pytest.approx(2 * expected.cost, rel=1e-6)
    assert np.sum((network(Z) - Y) ** 2) == pytest.approx(result.cost, rel=1e-9)
    np.testing.assert_allclose(result.x, expected.x, atol=1e-2)


def test_ridge_units_exact(rng):
    g = get_activation("tanh")
    truth = make_network((4, 4, 2), output_activation="identity", random_state=0)
    Z = rng.standard_normal((100, 4))
    scales, shifts = np.array([0.5, 1.0, 1.5, 2.0]), np.array([0.3, 0.0, -0.3, 0.5])
    Y = g(Z * scales + shifts) @ truth.weights[1] + truth.biases[1]
    network, result = fit_ridge_units(Z, Y, g, 0.8 * scales, shifts + 0.1)
    assert result.status == "target"
    np.testing.assert_allclose(np.diag(network.weights[0]), scales, rtol=1e-9)
    np.testing.assert_allclose(network.weights[1], truth.weights[1], rtol=1e-8)


def test_equal_units_do_not_blow_up(rng):
    """Two units with one direction and one start make the readout's least squares singular."""
    Z = np.repeat(rng.standard_normal((40, 1)), 2, axis=1)
    network, result = fit_ridge_units(Z, np.tanh(Z[:, :1]), get_activation("tanh"), np.ones(2), np.zeros(2))
    assert result.cost < 1e-20 and np.abs(network.weights[1]).max() < 10


@pytest.mark.parametrize("activation", ["softplus", "gelu"])
def test_ridge_units_with_wrong_signs(activation, rng):
    """A softplus or gelu unit turned round is off by a line; the fit must notice and turn it back."""
    network = make_network(
        (6, 5, 2), activation=activation, output_activation="identity", shift_scale=0.3, random_state=1
    )
    X = rng.standard_normal((300, 6))
    signs = np.array([1.0, -1.0, 1.0, -1.0, -1.0])
    Z = X @ (network.weights[0] * signs)
    found, result = fit_ridge_units(Z, network(X), get_activation(activation), np.full(5, 0.7), np.zeros(5))
    np.testing.assert_allclose(np.diag(found.weights[0]), signs, atol=1e-8)
    np.testing.assert_allclose(found.biases[0], network.biases[0], atol=1e-8)
    np.testing.assert_allclose(found(Z), network(X), atol=1e-10)
