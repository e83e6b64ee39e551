"""Projected ascent on products of spheres: known maxima, both array libraries, what it refuses."""

import numpy as np
import pytest
import torch

from skident.optim import sphere_ascent, unit_norm


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
