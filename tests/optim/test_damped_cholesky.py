"""Cholesky factors of matrices that are semidefinite up to rounding."""

import numpy as np
import pytest
from scipy.linalg import cho_solve

from skident.optim.damped_cholesky import damped_cholesky


@pytest.mark.parametrize("dtype", [np.float32, float])
def test_solutions_are_those_of_the_damped_matrix(rng, dtype):
    J = rng.standard_normal((9, 6))
    A, b = (J.T @ J).astype(dtype), rng.standard_normal(6)
    factor, damping = damped_cholesky(A, 1e-3)
    assert damping == 1e-3
    x = cho_solve((factor, False), b)
    np.testing.assert_allclose((A + 1e-3 * np.eye(6)) @ x, b, atol=1e3 * np.finfo(dtype).eps)


def test_the_damping_grows_until_a_singular_matrix_can_be_factored():
    J = np.ones((3, 2), dtype=np.float32) + np.float32(1e-5) * np.eye(3, 2, dtype=np.float32)
    _, damping = damped_cholesky(J.T @ J - np.float32(1e-4) * np.eye(2, dtype=np.float32), 1e-9)
    assert 1e-5 < damping < 1e-2


def test_matrices_that_are_not_semidefinite_are_refused():
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        damped_cholesky(np.array([[1.0, 5.0], [5.0, 1.0]]), 1e-6)
