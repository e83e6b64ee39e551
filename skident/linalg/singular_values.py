"""Singular value decompositions that end where divide and conquer does not."""

import math

import numpy as np
import scipy.linalg

from skident.budget import check_deadline

SVD_FLOPS = 10.0  # operations of a decomposition, over m n min(m, n) (Golub and Van Loan 2013, table 8.6.1)


def svd(A, full_matrices=True, compute_uv=True):
    """Singular value decomposition of matrices (..., m, n), as `numpy.linalg.svd` returns it.

    LAPACK's divide and conquer (gesdd) sometimes does not converge on finite matrices of low rank; QR iteration (gesvd)
    is then used, which is slower.

    Parameters
    ----------
    A : ndarray of shape (..., m, n)
        Matrices.
    full_matrices : bool, default=True
        Whether the singular vectors are completed to square matrices.
    compute_uv : bool, default=True
        Whether singular vectors are returned.

    Returns
    -------
    U : ndarray of shape (..., m, m) or (..., m, k)
        Left singular vectors, with ``k = min(m, n)``; only with `compute_uv`.
    s : ndarray of shape (..., k)
        Singular values, the largest first.
    Vt : ndarray of shape (..., n, n) or (..., k, n)
        Right singular vectors; only with `compute_uv`.

    Raises
    ------
    numpy.linalg.LinAlgError
        If neither converges, or the matrices are not finite.
    OutOfBudgetError
        If a `time_limit` is over, or would be before the decomposition ends.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import svd
    >>> svd(np.diag([3.0, 4.0]), compute_uv=False).tolist()
    [4.0, 3.0]
    """
    *batch, m, n = np.shape(A)
    check_deadline(SVD_FLOPS * math.prod(batch) * m * n * min(m, n))
    try:
        return np.linalg.svd(A, full_matrices=full_matrices, compute_uv=compute_uv)
    except np.linalg.LinAlgError:
        if not np.isfinite(A).all():
            raise
    return _by_qr_iteration(np.asarray(A), full_matrices, compute_uv)


def inverse_and_null(A, tol):
    """The pseudo-inverse (n, m) of A (m, n) without relative singular values up to a tolerance, and its null space."""
    U, s, Vt = svd(A)
    k = int((s > tol * s.max(initial=0.0)).sum())
    return (Vt[:k].T / s[:k]) @ U[:, :k].T, Vt[k:].T


def _by_qr_iteration(A, full_matrices, compute_uv):
    """As `svd`, one matrix after the other."""
    options = {"full_matrices": full_matrices, "compute_uv": compute_uv, "lapack_driver": "gesvd"}
    parts = [scipy.linalg.svd(M, **options) for M in A.reshape(-1, *A.shape[-2:])]
    stacked = [np.array(part) for part in (zip(*parts, strict=True) if compute_uv else [parts])]
    shaped = tuple(part.reshape(*A.shape[:-2], *part.shape[1:]) for part in stacked)
    return shaped if compute_uv else shaped[0]
