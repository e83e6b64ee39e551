import numpy as np
import pytest

from skident.linalg import find_symmetric_powers, power_jacobian, symmetric_power


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_jacobian_against_differences(order, rng):
    X, step = rng.standard_normal((3, 4)), 1e-6
    J = power_jacobian(X, order)
    for i in range(4):
        moved = [symmetric_power(X + sign * step * np.eye(4)[i], order) for sign in (1, -1)]
        np.testing.assert_allclose(J[:, :, i], (moved[0] - moved[1]) / (2 * step), atol=1e-8)


@pytest.mark.parametrize(("D", "order", "m"), [(7, 2, 16), (6, 3, 32), (5, 4, 40), (3, 4, 8), (4, 3, 12)])
@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_all_powers_of_a_subspace(D, order, m, error):
    rng = np.random.RandomState(m)
    X = rng.standard_normal((m, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    F = symmetric_power(X, order).T
    basis, _ = np.linalg.qr(F + error * rng.standard_normal(F.shape))
    found = find_symmetric_powers(basis, D, order, rng)
    assert len(found.vectors) == m and found.residuals.max() < 1e-12 + 50 * error
    assert np.abs(found.vectors @ X.T).max(axis=0).min() > 1 - 1e-8


def test_a_subspace_without_powers():
    rng = np.random.RandomState(0)
    basis, _ = np.linalg.qr(rng.standard_normal((56, 4)))
    found = find_symmetric_powers(basis, 6, 3, rng, max_rounds=3)
    assert len(found.vectors) == 0 and len(found.residuals) == 0
