import pickle
import time

import joblib
import numpy as np
import pytest

from skident.budget import OutOfBudgetError, check_deadline, time_limit
from skident.linalg import find_rank_one, svec_outer
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.optim import (
    BatchedNormalEquations,
    DenseNormalEquations,
    Ending,
    batched_levenberg_marquardt,
    conjugate_gradients,
    in_order,
    levenberg_marquardt,
)


def over():
    return time_limit(time.perf_counter() - 1.0, "3 s are over")


def in_seconds(seconds):
    return time_limit(time.perf_counter() + seconds, "3 s are over")


def is_over(_):
    try:
        check_deadline()
    except OutOfBudgetError:
        return True
    return False


def test_limits_nest_and_end():
    check_deadline(1e30)
    with over():
        assert is_over(0)
        with in_seconds(100.0):
            assert not is_over(0)
        with pytest.raises(OutOfBudgetError, match="^3 s are over$"):
            check_deadline()
    assert not is_over(0)


def test_a_call_that_would_take_too_long_is_not_begun():
    with in_seconds(100.0):
        check_deadline(1e9)
        with pytest.raises(OutOfBudgetError, match="3 s are over, or would be before 1.0e.14 operations on a matrix"):
            check_deadline(1e14)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_have_that_of_their_caller(backend):
    with joblib.parallel_config(backend=backend):
        with over():
            assert all(in_order(is_over, [(i,) for i in range(3)], 2))
        assert not any(in_order(is_over, [(i,) for i in range(3)], 2))


def test_errors_travel():
    from skident.budget import MemoryLimitError

    error = pickle.loads(pickle.dumps(MemoryLimitError("too much", 7)))
    assert str(error) == "too much" and error.needed == 7


def rosenbrock():
    r = lambda x: np.array([x[0] - 1, 10 * (x[1] - x[0] ** 2)])  # noqa: E731
    J = lambda x: np.array([[1.0, 0.0], [-20 * x[0], 10.0]])  # noqa: E731
    return lambda x: float(r(x) @ r(x)), lambda x: DenseNormalEquations(J(x).T @ J(x), J(x).T @ r(x))


def test_levenberg_marquardt_keeps_its_best_point():
    cost, linearize = rosenbrock()
    start = np.array([-1.2, 1.0])
    with over():
        result = levenberg_marquardt(cost, linearize, start)
    assert result.status == "max_iter" and np.array_equal(result.x, start) and result.cost == cost(start)
    made = []

    def until_the_fourth(x):
        made.append(x)
        if len(made) == 4:
            raise OutOfBudgetError("in the middle of a step")
        return linearize(x)

    result = levenberg_marquardt(cost, until_the_fourth, start)
    assert result.cost < cost(start) and len(result.history) == 4 and result.status == "max_iter"


class Roots:
    """Of ``x^2 = a``."""

    def __init__(self, a):
        self.a = a

    def take(self, index):
        return Roots(self.a[index])

    def cost(self, x):
        return (x[:, 0] ** 2 - self.a) ** 2

    def linearize(self, x):
        return BatchedNormalEquations(4 * x[:, :, None] ** 2, 2 * x * (x**2 - self.a[:, None]))

    def move(self, x, steps):
        return x + steps


def test_batched_levenberg_marquardt_keeps_its_best_points():
    with over():
        result = batched_levenberg_marquardt(Roots(np.array([4.0, 9.0])), np.ones((2, 1)), Ending(target=1e-28))
    assert np.array_equal(result.x, np.ones((2, 1))) and not result.n_iter.any()


def test_conjugate_gradients_and_power_iterations_end(rng):
    a = rng.standard_normal((5, 4))
    basis = np.linalg.qr(svec_outer(a / np.linalg.norm(a, axis=1, keepdims=True)).T)[0]
    with over():
        with pytest.raises(OutOfBudgetError, match="3 s are over"):
            conjugate_gradients(lambda v: v, np.ones(3))
        with pytest.raises(OutOfBudgetError, match="3 s are over"):
            find_rank_one(basis, 4)


def test_a_lattice_reduction_that_takes_too_long_is_left_out(rng):
    """80 signs in 10 equations take about half a second."""
    M = rng.standard_normal((10, 80))
    signs = rng.choice([-1.0, 1.0], 80)
    with in_seconds(0.2), pytest.raises(UndecidedSignsError, match="80 signs need a lattice reduction: 3 s are over"):
        solve_signs(M, M @ signs, 1e-11)
    with in_seconds(300.0):
        assert np.array_equal(solve_signs(M, M @ signs, 1e-11)[0], signs)
