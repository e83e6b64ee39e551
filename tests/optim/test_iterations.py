"""Batches of small problems, bisection, conjugate gradients, and ascent on spheres."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from skident.optim import (
    BatchedNormalEquations,
    Ending,
    batched_levenberg_marquardt,
    bisect,
    conjugate_gradients,
    sphere_ascent,
    unit_norm,
)


class Roots:
    """``x^2 = a``."""

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


def test_an_iteration_that_is_taken_up_again_begins_with_its_damping():
    problems, ending = Roots(np.array([4.0, 9.0])), Ending(target=1e-28)
    x = np.array([[1.9], [3.1]])  # so close that no step is refused
    whole = batched_levenberg_marquardt(problems, x, replace(ending, max_iter=4))
    part = batched_levenberg_marquardt(problems, x, replace(ending, max_iter=2))
    rest = batched_levenberg_marquardt(problems, part.x, replace(ending, max_iter=2, damping=part.damping))
    assert np.all(part.damping < ending.damping) and np.all(part.cost > whole.cost)
    np.testing.assert_array_equal(rest.x, whole.x)


def test_no_step_is_made_after_the_deadline():
    result = batched_levenberg_marquardt(Roots(np.array([4.0])), np.ones((1, 1)), Ending(deadline=0.0))
    assert result.n_iter[0] == 0 and result.x[0, 0] == 1.0


def test_intervals_close_in_on_their_own_borders():
    borders = np.array([0.1, 0.5, 0.9])
    low, high = bisect(lambda t: t >= borders, np.zeros(3), np.ones(3), 30)
    assert np.all((low < borders) & (borders <= high))
    np.testing.assert_allclose(high - low, 2.0**-30)


def test_segments_between_points(rng):
    start, end = rng.standard_normal((2, 5, 3))
    low, high = bisect(
        lambda U: np.linalg.norm(U - start, axis=1) > 0.3 * np.linalg.norm(end - start, axis=1), start, end, 40
    )
    np.testing.assert_allclose(high, start + 0.3 * (end - start), atol=1e-10)
    np.testing.assert_allclose(low, high, atol=1e-10)


def system(rng, n=30, condition=1e3):
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (Q * np.geomspace(1.0, condition, n)) @ Q.T, rng.standard_normal(n)


@pytest.mark.parametrize("own_norm", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_against_a_direct_solve(rng, own_norm, exact):
    A, b = system(rng)
    M = np.linalg.inv(A) if exact else np.diag(1.0 / np.diag(A))
    found = conjugate_gradients(lambda v: A @ v, b, precondition=lambda v: M @ v, tol=1e-12, own_norm=own_norm)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), rtol=1e-8)
    np.testing.assert_allclose(found.residual, b - A @ found.x, atol=1e-9)
    assert found.n_products == 1 if exact else found.n_products < 200


def test_tensors_give_what_arrays_give(rng):
    A, b = system(rng, condition=10.0)
    T = torch.as_tensor(A)
    found = conjugate_gradients(lambda v: T @ v, torch.as_tensor(b), tol=1e-10)
    np.testing.assert_allclose(found.x.numpy(), conjugate_gradients(lambda v: A @ v, b, tol=1e-10).x, rtol=1e-8)


def test_ends(rng):
    A, b = system(rng)
    assert conjugate_gradients(lambda v: A @ v, b, max_iter=3).n_products == 3
    nothing = conjugate_gradients(lambda v: A @ v, 0.0 * b)
    assert nothing.n_products == 0 and not nothing.x.any()
    down = conjugate_gradients(lambda v: -A @ v, b)
    assert down.n_products == 1 and not down.x.any()  # no positive curvature along b


def bilinear(A):
    """Value and gradient of ``u^T A v`` for blocks u (R, a, 1), v (R, b, 1): largest at the first singular vectors."""

    def objective(blocks):
        u, v = blocks
        return (u * (A @ v)).sum((1, 2)), [A @ v, A.T @ u]

    return objective


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_largest_singular_value_is_found_from_every_start(library):
    rng = np.random.RandomState(0)
    A, starts = rng.standard_normal((6, 4)), [rng.standard_normal((5, 6, 1)), rng.standard_normal((5, 4, 1))]
    given = [A, *starts] if library == "numpy" else [torch.as_tensor(W) for W in (A, *starts)]
    result = sphere_ascent(bilinear(given[0]), given[1:], step_size=1.0, max_iter=300)
    # Where the steps end before the angle e does, the value is off by a share of order e^2: seen here up to 2e-6.
    np.testing.assert_allclose(np.asarray(result.values), np.linalg.norm(A, 2), rtol=1e-5)
    assert result.n_iter == 300
    assert all(np.allclose(np.linalg.norm(np.asarray(W), axis=(1, 2)), 1.0, rtol=1e-12) for W in result.blocks)


def test_both_libraries_take_the_same_steps():
    rng = np.random.RandomState(1)
    A, starts = rng.standard_normal((3, 3)), [rng.standard_normal((2, 3, 1)), rng.standard_normal((2, 3, 1))]
    one = sphere_ascent(bilinear(A), starts, max_iter=7)
    two = sphere_ascent(bilinear(torch.as_tensor(A)), [torch.as_tensor(W) for W in starts], max_iter=7)
    for a, b in zip(one.blocks, two.blocks):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [-30, 30])
def test_normalising_neither_under_nor_overflows(dtype, exponent):
    W = torch.full((1, 2, 2), 10.0**exponent, dtype=dtype)
    np.testing.assert_allclose(unit_norm(W).numpy(), 0.5, rtol=1e-6)
    assert not unit_norm(torch.zeros_like(W)).any()


def test_a_start_without_gradient_stays_and_the_others_move():
    starts = [np.array([[[0.0], [1.0]], [[0.6], [0.8]]])]
    # u_1^2 for nonnegative u_1: no slope at u_1 = 0.
    first = np.array([[1.0], [0.0]])
    result = sphere_ascent(lambda b: (b[0][:, 0, 0] ** 2, [2 * b[0] * first]), starts, step_size=1.0)
    np.testing.assert_allclose(result.values, [0.0, 1.0], atol=1e-6)


def test_a_callback_ends_the_ascent():
    result = sphere_ascent(bilinear(np.eye(2)), [np.ones((1, 2, 1))] * 2, callback=lambda n, values: n == 3)
    assert result.n_iter == 3


@pytest.mark.parametrize("options", [{"step_size": 0.0}, {"last_step_size": -1.0}, {"max_iter": 0}])
def test_steps_that_are_none_are_refused(options):
    with pytest.raises(ValueError, match="must be positive"):
        sphere_ascent(bilinear(np.eye(2)), [np.ones((1, 2, 1))] * 2, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_gives_what_the_cpu_gives():
    rng = np.random.RandomState(0)
    A, starts = rng.standard_normal((6, 4)), [rng.standard_normal((5, 6, 1)), rng.standard_normal((5, 4, 1))]
    on_gpu = [torch.as_tensor(W, device="cuda") for W in (A, *starts)]
    result = sphere_ascent(bilinear(on_gpu[0]), on_gpu[1:], max_iter=50)
    assert result.values.device.type == "cuda"
    np.testing.assert_allclose(
        result.values.cpu().numpy(), sphere_ascent(bilinear(A), starts, max_iter=50).values, rtol=1e-10
    )
