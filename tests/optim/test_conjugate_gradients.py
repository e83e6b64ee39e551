import numpy as np
import pytest
import torch

from skident.optim import conjugate_gradients


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
