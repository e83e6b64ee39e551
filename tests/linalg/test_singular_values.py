"""Singular value decompositions by QR iteration, where divide and conquer fails."""

import numpy as np
import pytest

from skident.linalg import svd


def _fails(*_, **__):
    raise np.linalg.LinAlgError("SVD did not converge")


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 3), (2, 3, 4, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_qr_iteration_returns_what_divide_and_conquer_does(monkeypatch, shape, full):
    A = np.random.default_rng(0).standard_normal(shape)
    A[..., -1, :] = A[..., 0, :]  # of low rank
    expected = np.linalg.svd(A, full_matrices=full)
    monkeypatch.setattr(np.linalg, "svd", _fails)
    U, s, Vt = svd(A, full_matrices=full)
    assert U.shape == expected[0].shape
    assert Vt.shape == expected[2].shape
    k, eps = s.shape[-1], np.finfo(float).eps
    bound = 100 * eps * s.max()  # backward stable: errors are rounding of the largest singular value
    np.testing.assert_allclose(s, expected[1], atol=bound)
    np.testing.assert_allclose(U[..., :k] * s[..., None, :] @ Vt[..., :k, :], A, atol=bound)
    np.testing.assert_allclose(svd(A, compute_uv=False), s, atol=bound)


def test_matrices_that_are_not_finite_fail(monkeypatch):
    monkeypatch.setattr(np.linalg, "svd", _fails)
    with pytest.raises(np.linalg.LinAlgError, match="converge"):
        svd(np.full((2, 2), np.nan))
