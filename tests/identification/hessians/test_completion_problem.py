import numpy as np
import pytest
import torch

from skident.datasets import make_network
from skident.identification.hessians.completion_module import CompletionModule
from skident.identification.hessians.completion_problem import CompletionProblem, mixing_matrices, solve_completion
from skident.network import Architecture
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
    """A problem with random parameters, features and outputs."""
    widths, hidden, output, free = CASES[request.param]
    n_mixings = len(widths) - 1 - free
    mixings = [rng.standard_normal(widths[i : i + 2]) for i in range(n_mixings)]
    problem = CompletionProblem(Architecture(widths, hidden, output), mixings)
    assert problem.free_readout == free
    params = rng.standard_normal(problem.n_parameters)
    return problem, params, rng.standard_normal((19, widths[0])), rng.standard_normal((19, widths[-1]))


def outputs(problem, params, Z):
    lists = problem.to_lists(params)
    return np.stack([reference_completion(lists, problem.mixings, problem.activations, z) for z in Z])


def test_residual_is_equation_18(case):
    problem, params, Z, Y = case
    np.testing.assert_allclose(problem.residual(params, Z, Y), outputs(problem, params, Z) - Y, atol=1e-12)


def test_number_of_parameters(case):
    problem, params, *_ = case
    m = problem.widths
    if problem.free_readout:
        expected = 3 * sum(m[:-2]) + 2 * m[-2] + m[-2] * m[-1] + m[-1]
    else:
        expected = 3 * sum(m) - m[-1]
    assert problem.n_parameters == expected == len(params)


def test_lists_and_back(case):
    problem, params, *_ = case
    np.testing.assert_array_equal(problem.from_lists(problem.to_lists(params)), params)


@pytest.mark.parametrize("chunk_bytes", [1, 2**27])
def test_normal_equations(case, chunk_bytes):
    problem, params, Z, Y = case
    J = reference_residual_jacobian(lambda w: problem.residual(w, Z, Y), params)
    A, g = problem.normal_equations(params, Z, Y, chunk_bytes=chunk_bytes)
    np.testing.assert_allclose(A, J.T @ J, atol=1e-7 * np.abs(A).max())
    np.testing.assert_allclose(g, J.T @ problem.residual(params, Z, Y).ravel(), atol=1e-7 * np.abs(g).max())


def test_the_paper_s_start(case):
    problem, *_ = case
    lists = problem.to_lists(problem.initial())
    assert all(np.all(T == 1) for T in lists["scales"] + lists["rescales"])
    assert all(np.all(tau == 0) for tau in lists["biases"])


def test_given_start(case):
    problem, *_ = case
    scales, shifts = np.arange(1.0, problem.widths[0] + 1), -np.arange(1.0, problem.widths[0] + 1)
    lists = problem.to_lists(problem.initial(scales, shifts))
    np.testing.assert_array_equal(lists["scales"][0], scales)
    np.testing.assert_array_equal(lists["biases"][0], shifts)


def test_readout_by_least_squares(case):
    problem, params, Z, Y = case
    fitted = problem.with_readout(params, Z, Y)
    if not problem.free_readout:
        np.testing.assert_array_equal(fitted, params)
    elif problem.activations[-1].name == "identity":
        J = reference_residual_jacobian(lambda w: problem.residual(w, Z, Y), fitted)
        last = [problem.slices[key, len(problem.widths) - 1] for key in ("tau", "W")]
        gradient = J.T @ problem.residual(fitted, Z, Y).ravel()
        assert all(np.abs(gradient[where]).max() < 1e-7 for where in last)


def test_torch_module_computes_the_same(case):
    problem, params, Z, _ = case
    module = CompletionModule(problem.architecture, problem.mixings, start=problem.to_lists(params))
    with torch.no_grad():
        Y = module(torch.as_tensor(Z)).numpy()
    np.testing.assert_allclose(Y, problem.residual(params, Z, 0.0), atol=1e-12)
    np.testing.assert_array_equal(problem.from_lists(module.to_lists()), params)
    assert sum(p.numel() for p in module.parameters()) == problem.n_parameters


def test_torch_gradient_is_ours(case):
    problem, params, Z, Y = case
    module = CompletionModule(problem.architecture, problem.mixings, start=problem.to_lists(params))
    torch.sum((module(torch.as_tensor(Z)) - torch.as_tensor(Y)) ** 2).backward()
    lists = {name: [p.grad.numpy() for p in getattr(module, name)] for name in ("scales", "biases", "rescales")}
    if problem.free_readout:
        lists["readout"] = module.readout.grad.numpy()
    _, g = problem.normal_equations(params, Z, Y)
    np.testing.assert_allclose(problem.from_lists(lists), 2 * g, atol=1e-10 * np.abs(g).max())


def test_solved_from_nearby(case, rng):
    problem, params, Z, _ = case
    Z = rng.standard_normal((200, Z.shape[1]))
    params = problem.initial() + 0.2 * params
    Y = problem.residual(params, Z, 0.0)
    start = params + 1e-2 * rng.standard_normal(len(params))
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
