from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

from skident.optim import (
    DenseJacobian,
    DenseNormalEquations,
    FactoredNormalEquations,
    KeptFactor,
    KrylovNormalEquations,
    give_up_when_slow,
    levenberg_marquardt,
)


@dataclass
class Problem:
    """Residual (n,) and Jacobian (n, P) as functions of x (P,), and a start."""

    residual: Any
    jacobian: Any
    start: Any

    def cost(self, x):
        r = self.residual(x)
        return float(r @ r)

    def dense(self, x):
        J = self.jacobian(x)
        return DenseNormalEquations(J.T @ J, J.T @ self.residual(x))

    def krylov(self, x, tol=1e-13):
        J = self.jacobian(x)
        diagonal = (J**2).sum(0)
        safe = diagonal + (diagonal == 0)
        return KrylovNormalEquations(
            lambda v: J.T @ (J @ v),
            J.T @ self.residual(x),
            diagonal,
            lambda damping: lambda v: v / (safe * (1 + damping)),
            tol=tol,
        )

    def factored(self, x, tol=1e-13, kept=None):
        J = self.jacobian(x)
        kept = KeptFactor() if kept is None else kept
        return FactoredNormalEquations(lambda v: J.T @ (J @ v), J.T @ self.residual(x), lambda: J.T @ J, kept, tol=tol)


def rosenbrock():
    return Problem(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
        lambda x: np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]),
        np.array([-1.2, 1.0]),
    )


def exponential_fit(noise=0.1):
    """``a exp(-b t) + c`` against noisy data: the residual stays at the noise."""
    t = np.linspace(0, 3, 40)
    y = 2.5 * np.exp(-1.3 * t) + 0.5 + noise * np.random.default_rng(0).normal(size=40)
    return Problem(
        lambda x: x[0] * np.exp(-x[1] * t) + x[2] - y,
        lambda x: np.stack([np.exp(-x[1] * t), -t * x[0] * np.exp(-x[1] * t), np.ones(40)], axis=1),
        np.array([1.0, 1.0, 0.0]),
    )


def powell_singular():
    """Powell's function: the Jacobian loses rank at the solution 0."""
    return Problem(
        lambda x: np.array(
            [x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2]
        ),
        lambda x: np.array(
            [
                [1, 10, 0, 0],
                [0, 0, 5**0.5, -(5**0.5)],
                [0, 2 * (x[1] - 2 * x[2]), -4 * (x[1] - 2 * x[2]), 0],
                [2 * 10**0.5 * (x[0] - x[3]), 0, 0, -2 * 10**0.5 * (x[0] - x[3])],
            ]
        ),
        np.array([3.0, -1.0, 0.0, 1.0]),
    )


def redundant():
    """Only x0 + x1 matters, and x3 not at all: rank 2 of 4 everywhere."""
    t = np.linspace(0, 1, 10)
    y = np.exp(0.7 * t) + 0.3 * t**2
    return Problem(
        lambda x: np.exp((x[0] + x[1]) * t) + x[2] * t**2 - y,
        lambda x: np.stack([t * np.exp((x[0] + x[1]) * t)] * 2 + [t**2, 0 * t], axis=1),
        np.array([2.0, -3.0, 1.0, 5.0]),
    )


def badly_scaled():
    problem, units = exponential_fit(), np.array([1e6, 1e-6, 1.0])
    return Problem(
        lambda x: problem.residual(x * units), lambda x: problem.jacobian(x * units) * units, problem.start / units
    )


PROBLEMS = [rosenbrock, exponential_fit, powell_singular, redundant, badly_scaled]


@pytest.mark.parametrize("model", ["dense", "krylov", "factored"])
@pytest.mark.parametrize("make", PROBLEMS)
def test_against_scipy(make, model):
    problem = make()
    expected = least_squares(problem.residual, problem.start, problem.jacobian, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    result = levenberg_marquardt(problem.cost, getattr(problem, model), problem.start, target=1e-24)
    assert result.cost == problem.cost(result.x)
    assert result.cost <= 2 * expected.cost * (1 + 1e-12) + 1e-24
    assert result.n_iter <= 60
    if make not in (powell_singular, redundant):
        np.testing.assert_allclose(result.x, expected.x, rtol=1e-6)
    if make is redundant:
        np.testing.assert_allclose([result.x[0] + result.x[1], result.x[2], result.x[3]], [0.7, 0.3, 5.0], atol=1e-9)


@pytest.mark.parametrize("make", PROBLEMS)
def test_costs_only_fall(make):
    result = levenberg_marquardt(make().cost, make().dense, make().start, max_iter=20)
    assert result.history[0] == make().cost(make().start) and result.history[-1] == result.cost
    assert (np.diff(result.history) < 0).all()
    assert len(result.history) in (result.n_iter, result.n_iter + 1)


@pytest.mark.parametrize("damping", [1e-8, 1e-2, 10.0])
@pytest.mark.parametrize("make", [rosenbrock, exponential_fit, badly_scaled])
def test_all_models_solve_the_same_system(make, damping):
    problem = make()
    J, r = problem.jacobian(problem.start), problem.residual(problem.start)
    scale = np.linalg.norm(J, axis=0)
    augmented = np.vstack([J, damping**0.5 * np.diag(scale)])
    expected = np.linalg.lstsq(augmented / scale, np.concatenate([-r, 0 * scale]), rcond=None)[0] / scale
    decrease = r @ r - np.sum((r + J @ expected) ** 2)
    models = (problem.dense(problem.start), *(m(problem.start, tol=1e-15) for m in (problem.krylov, problem.factored)))
    for model in models:
        step, predicted = model.solve(damping)
        np.testing.assert_allclose(step, expected, rtol=1e-7)
        assert predicted == pytest.approx(decrease, rel=1e-9)


def test_truncated_conjugate_gradients_predict_their_own_decrease():
    problem = exponential_fit()
    model = problem.krylov(problem.start)
    model.max_iter = 1
    step, predicted = model.solve(1e-3)
    J, r = problem.jacobian(problem.start), problem.residual(problem.start)
    assert predicted == pytest.approx(r @ r - np.sum((r + J @ step) ** 2), rel=1e-9)


def test_zero_columns_get_no_step():
    problem = redundant()
    for model in (problem.dense(problem.start), problem.krylov(problem.start), problem.factored(problem.start)):
        assert model.solve(1e-3)[0][3] == 0.0
    zero = DenseNormalEquations(np.zeros((2, 2)), np.zeros(2))
    np.testing.assert_array_equal(zero.solve(1.0)[0], 0.0)


@pytest.mark.parametrize("make", [rosenbrock, exponential_fit, badly_scaled])
def test_one_factor_serves_several_steps(make):
    problem, kept, formed = make(), KeptFactor(), []

    def linearize(x):
        model = problem.factored(x, tol=1e-10, kept=kept)
        form = model.form
        model.form = lambda: formed.append(x) or form()
        return model

    expected = levenberg_marquardt(problem.cost, problem.dense, problem.start, target=1e-24)
    result = levenberg_marquardt(problem.cost, linearize, problem.start, target=1e-24, max_iter=200)
    assert result.cost <= expected.cost * (1 + 1e-9) + 1e-24
    assert len(formed) < result.n_iter


def test_a_factor_far_off_is_replaced():
    """With two products a solve, the factor of another matrix does not serve; the right one needs one."""
    A = np.diag(np.arange(1.0, 9.0) ** 2)
    mixed = np.random.default_rng(0).standard_normal((20, 8))
    kept, formed = KeptFactor(), []
    kept.take(mixed.T @ mixed)
    model = FactoredNormalEquations(lambda v: A @ v, np.ones(8), lambda: formed.append(1) or A.copy(), kept, few=2)
    np.testing.assert_allclose(model.solve(0.0)[0], -1.0 / np.diag(A), rtol=1e-9)
    assert formed == [1]


def test_a_matrix_that_is_not_finite_is_refused():
    kept = KeptFactor()
    kept.take(np.array([[1.0, np.nan], [np.nan, 1.0]]))
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        kept.factor_for(1e-3)


# -- how it ends -------------------------------------------------------------------------------------------------------


def test_status_target():
    problem = rosenbrock()
    result = levenberg_marquardt(problem.cost, problem.dense, problem.start, target=1e-3)
    assert result.status == "target" and 0 < result.cost <= 1e-3 < result.history[-2]
    again = levenberg_marquardt(problem.cost, problem.dense, result.x, target=1e-3)
    assert (again.status, again.n_iter, again.history) == ("target", 0, [result.cost])
    assert again.x is result.x


def test_status_stationary():
    problem = exponential_fit()
    result = levenberg_marquardt(problem.cost, problem.dense, problem.start, ftol=1e-6)
    assert result.status == "stationary"
    a, b, c = result.history[-3:]
    assert (a - b) / a < 1e-6 and (b - c) / b < 1e-6


@pytest.mark.parametrize("model", ["dense", "krylov", "factored"])
def test_status_stalled_at_a_stationary_point(model):
    problem = Problem(lambda x: np.array([1.0, x[0]]), lambda x: np.array([[0.0], [1.0]]), np.zeros(1))
    result = levenberg_marquardt(problem.cost, getattr(problem, model), problem.start)
    assert (result.status, result.n_iter, result.cost) == ("stalled", 1, 1.0)


@pytest.mark.parametrize("max_iter", [0, 1, 3])
def test_status_max_iter(max_iter):
    problem, calls = rosenbrock(), []
    result = levenberg_marquardt(
        problem.cost, lambda x: calls.append(x) or problem.dense(x), problem.start, max_iter=max_iter
    )
    assert (result.status, result.n_iter, len(calls)) == ("max_iter", max_iter, max_iter)
    assert len(result.history) == max_iter + 1


def test_callback_sees_every_step_and_stops():
    problem, seen = rosenbrock(), []

    def callback(n_iter, cost):
        seen.append((n_iter, cost))
        return n_iter == 4

    result = levenberg_marquardt(problem.cost, problem.dense, problem.start, callback=callback)
    assert (result.status, result.n_iter) == ("max_iter", 4)
    assert seen == list(enumerate(result.history))[1:]
    seen.clear()
    levenberg_marquardt(problem.cost, problem.dense, problem.start, target=1e-20, callback=lambda *s: seen.append(s))
    assert seen[-1][1] <= 1e-20


def test_giving_up_when_slow():
    callback = give_up_when_slow(patience=2, good=1e-3)
    assert [bool(callback(k, c)) for k, c in enumerate([8.0, 7.0, 3.9, 3.0, 2.0])] == [False] * 3 + [False, True]
    good = give_up_when_slow(patience=1, good=1e-3)
    assert not any(good(k, 1e-4) for k in range(5))


# -- hard places -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wall", [np.nan, np.inf, -np.inf])
def test_costs_that_are_not_finite_are_rejected(wall):
    """Beyond x = 0.5 the cost is no number; full steps from the start jump there."""
    problem, rejected = rosenbrock(), []

    def cost(x):
        if x[0] > 0.5:
            rejected.append(x)
            return wall
        return problem.cost(x)

    result = levenberg_marquardt(cost, problem.dense, problem.start, max_iter=50)
    assert rejected and np.isfinite(result.history).all()
    assert 0.4 < result.x[0] <= 0.5


@pytest.mark.parametrize("start", [np.nan, np.inf])
def test_start_that_is_not_finite(start):
    def never(x):
        raise AssertionError("linearized where the cost is not finite")

    result = levenberg_marquardt(lambda x: start, never, np.zeros(2))
    assert (result.status, result.n_iter) == ("stalled", 0)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, RuntimeError, ZeroDivisionError])
def test_failed_solves_raise_the_damping(error):
    problem, tried = rosenbrock(), []

    class Fragile:
        def __init__(self, x):
            self.model = problem.dense(x)

        def solve(self, damping):
            tried.append(damping)
            if damping < 1e-3:
                raise error
            return self.model.solve(damping)

    result = levenberg_marquardt(problem.cost, Fragile, problem.start, max_iter=200, target=1e-12)
    assert result.status == "target" and min(tried) < 1e-3 < max(tried)


def test_steps_that_are_not_finite_end_the_iteration():
    class Broken:
        def solve(self, damping):
            return np.array([np.nan]), 1.0

    result = levenberg_marquardt(lambda x: float(x @ x), lambda x: Broken(), np.ones(1))
    assert (result.status, result.cost) == ("stalled", 1.0)


@pytest.mark.parametrize("prediction", [1e-200, 0.0, -1.0])
def test_useless_predictions_do_no_harm(prediction):
    """The cost falls though the model's prediction is far too small (its cube would overflow), or wrong."""

    class Model:
        def __init__(self, x):
            self.x = x

        def solve(self, damping):
            return -0.5 * self.x, prediction

    result = levenberg_marquardt(lambda x: float(x @ x), Model, np.ones(2), target=1e-6, max_iter=30)
    assert result.status == "target"


def test_largest_damping_is_still_tried():
    problem, tried = rosenbrock(), []

    def linearize(x):
        model = problem.dense(x)
        solve = model.solve
        model.solve = lambda damping: tried.append(damping) or solve(damping)
        return model

    levenberg_marquardt(problem.cost, linearize, problem.start, damping=1e9, max_iter=2)
    assert tried[0] == 1e8


# -- torch -------------------------------------------------------------------------------------------------------------


def in_torch(problem):
    """The same problem on tensors."""
    return Problem(
        lambda x: torch.from_numpy(problem.residual(x.numpy())),
        lambda x: torch.from_numpy(np.array(problem.jacobian(x.numpy()), dtype=float)),
        torch.from_numpy(problem.start),
    )


@pytest.mark.parametrize("model", ["dense", "krylov"])
@pytest.mark.parametrize("make", PROBLEMS)
def test_torch_tensors_give_the_same_answers(make, model):
    results = []
    for problem in (make(), in_torch(make())):
        results.append(levenberg_marquardt(problem.cost, getattr(problem, model), problem.start, target=1e-20))
    assert isinstance(results[1].x, torch.Tensor) and results[1].x.dtype == torch.float64
    assert results[1].cost <= results[0].cost * (1 + 1e-9) + 1e-20
    if make not in (powell_singular, redundant):
        np.testing.assert_allclose(results[1].x.numpy(), results[0].x, rtol=1e-6)


def test_singular_torch_matrix_is_a_failed_solve():
    """Without damping to speak of, torch's solver raises; the iteration goes on with more."""
    problem = in_torch(redundant())
    result = levenberg_marquardt(problem.cost, problem.dense, problem.start, damping=1e-15, target=1e-20)
    assert result.status == "target"


def test_a_jacobian_solved_by_qr_gives_the_damped_step_of_normal_equations(rng):
    J, r = rng.standard_normal((20, 4)) * [1.0, 1e-2, 3.0, 1e2], rng.standard_normal(20)
    for damping in (0.0, 1e-3, 1.0):
        step, predicted = DenseJacobian(J, r).solve(damping)
        expected, decrease = DenseNormalEquations(J.T @ J, J.T @ r).solve(damping)
        np.testing.assert_allclose(step, expected, rtol=1e-9)
        np.testing.assert_allclose(predicted, decrease, rtol=1e-9)
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    model = DenseJacobian(J, r, scale)
    expected = -np.linalg.solve(J.T @ J + np.diag(0.1 / scale**2), J.T @ r)
    np.testing.assert_allclose(model.solve(0.1)[0], expected, rtol=1e-9)
    np.testing.assert_allclose(model.gradient, J.T @ r, rtol=1e-12)


def test_a_singular_jacobian_has_no_undamped_step():
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        DenseJacobian(np.zeros((3, 2)), np.ones(3)).solve(0.0)


def test_directions_below_the_root_of_rounding_are_solved_by_qr(rng):
    """Normal equations square the condition number, 1e9, and lose the last direction."""
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    J = rng.standard_normal((30, 3)) @ (Q * [1.0, 1.0, 1e-9]) @ Q.T
    truth = rng.standard_normal(3)
    step, _ = DenseJacobian(J, -J @ truth).solve(0.0)
    np.testing.assert_allclose(step, truth, rtol=1e-5)
