"""Symmetric matrices as vectors, leading subspaces, and statistics of columns."""

import numpy as np
import pytest
import torch

from skident.linalg import column_units, leading_subspace, n_free_entries, smat, svec, svec_outer
from tests.references import reference_leading_subspace, reference_svec

BACKENDS = [np.asarray, torch.asarray]


def symmetric(rng, *shape):
    A = rng.normal(size=shape)
    return A + np.swapaxes(A, -1, -2)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("D", [1, 2, 3, 7])
def test_svec_and_smat_against_entry_by_entry(to, D, rng):
    A = symmetric(rng, 3, 2, D, D)
    expected = np.array([[reference_svec(M) for M in row] for row in A])
    s = svec(to(A))
    assert type(s) is type(to(A)) and s.shape == (3, 2, n_free_entries(D))
    np.testing.assert_array_equal(np.asarray(s), expected)
    np.testing.assert_allclose(np.asarray(smat(s, D)), A, rtol=1e-15)
    np.testing.assert_allclose(np.asarray(svec(smat(s, D))), expected, rtol=1e-15)


@pytest.mark.parametrize("D", [1, 2, 7])
def test_frobenius_products_become_dot_products(D, rng):
    A, B = symmetric(rng, 2, D, D)
    assert svec(A) @ svec(B) == pytest.approx(np.sum(A * B), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("D", [1, 2, 7])
def test_svec_outer_against_the_matrices(to, D, rng):
    u = rng.normal(size=(5, D))
    expected = np.array([reference_svec(np.outer(v, v)) for v in u])
    np.testing.assert_allclose(np.asarray(svec_outer(to(u))), expected, rtol=1e-15)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
def test_single_precision_stays_and_whole_numbers_become_floats(to, rng):
    assert "float32" in str(svec(to(symmetric(rng, 4, 4).astype(np.float32))).dtype)
    np.testing.assert_array_equal(np.asarray(svec(to(np.array([[1, 2], [2, 3]])))), [1.0, 2.0 * 2.0**0.5, 3.0])
    np.testing.assert_array_equal(np.asarray(svec_outer(to(np.array([[1, 2]])))), [[1.0, 2.0 * 2.0**0.5, 4.0]])


# -- leading subspace --------------------------------------------------------------------------------------------------


def projection(basis):
    return np.asarray(basis) @ np.asarray(basis).T


def decaying(rng, n, q, ratio=0.5):
    """A matrix with singular values 1, ratio, ratio^2, ..."""
    k = min(n, q)
    U, V = np.linalg.qr(rng.normal(size=(n, k)))[0], np.linalg.qr(rng.normal(size=(q, k)))[0]
    return U * ratio ** np.arange(k) @ V.T


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("cuts", [[], [4], [1, 5, 6]], ids=len)
@pytest.mark.parametrize(("n", "q", "rank"), [(12, 30, 5), (12, 30, 12), (30, 12, 5), (30, 12, 12), (12, 12, 7)])
def test_leading_subspace_against_svd(to, n, q, rank, cuts, rng):
    rows = decaying(rng, n, q)
    P, expected = reference_leading_subspace(rows, rank)
    basis, values = leading_subspace([to(c) for c in np.split(rows, cuts)], rank)
    assert basis.shape == (q, rank) and values.shape == (min(n, q),)
    np.testing.assert_allclose(np.asarray(values), expected, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(basis).T @ np.asarray(basis), np.eye(rank), atol=1e-13)
    # The Gram matrix squares the condition: rounding, over the squared singular values' gap.
    np.testing.assert_allclose(projection(basis), P, atol=1e-13 * 4.0**rank)


@pytest.mark.parametrize("shape", [(8, 40), (40, 8)])
def test_basis_is_orthonormal_next_to_the_smallest_singular_values(shape, rng):
    rows = decaying(rng, *shape, ratio=0.12)
    basis, _ = leading_subspace([rows], 8)  # the last singular value is 4e-7 of the first
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-13)
    np.testing.assert_allclose(rows @ projection(basis), rows, atol=1e-13)


@pytest.mark.parametrize(("n", "q", "rank"), [(5, 9, 6), (9, 5, 6), (5, 9, 0)])
def test_rank_beyond_the_matrix_size(n, q, rank, rng):
    message = f"subspace of {n} vectors of length {q} is 1 to 5, not {rank}"
    with pytest.raises(ValueError, match=message):
        leading_subspace([rng.normal(size=(n, q))], rank)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "q"), [(9, 20), (20, 9)])
def test_rank_beyond_the_numerical_rank(n, q, seed):
    """Rounding makes zero eigenvalues a little positive or negative: neither may pass for a direction."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4)) @ rng.normal(size=(4, q))
    leading_subspace([rows], 4)
    with pytest.raises(ValueError, match=f"the {n} vectors span 4 dimensions, fewer than the 5 .*singular value 5 is"):
        leading_subspace([rows], 5)


def test_zero_matrix_spans_nothing():
    with pytest.raises(ValueError, match="span 0 dimensions"):
        leading_subspace([np.zeros((3, 6))], 1)


@pytest.mark.parametrize("exponent", [-1000, -500, 0, 500, 1000])
def test_units_of_numbers_whose_squares_overflow(exponent, rng):
    """Powers of two change no digit; a column that does not vary has the unit that is asked for."""
    A = np.column_stack([rng.standard_normal((30, 3)), np.full(30, 0.7), np.zeros(30)])
    mean, unit = column_units(np.ldexp(A, exponent), constant=-1.0)
    np.testing.assert_array_equal(mean, np.ldexp(A.mean(axis=0), exponent))
    np.testing.assert_array_equal(unit[:3], np.ldexp(A.std(axis=0)[:3], exponent))
    assert unit[3:].tolist() == [-1.0, -1.0]
