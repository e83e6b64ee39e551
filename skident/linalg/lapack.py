"""Factorizations and solvers of NumPy and SciPy, none of which begins if the deadline would pass before it ends.

One call of LAPACK cannot be interrupted. So every stage calls these, and a loop over factorizations needs no check of
its own. The operations are those of Golub and Van Loan (2013), tables 5.5.1 and 8.6.1, up to a factor of two.
"""

import functools
import math

import numpy as np
import scipy.linalg

from skident.budget import check_deadline

from .singular_values import SVD_FLOPS, svd

__all__ = [
    "cho_factor",
    "cholesky",
    "cond",
    "eig",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_rank",
    "null_space",
    "orth",
    "pinv",
    "qr",
    "scipy_cholesky",
    "scipy_lstsq",
    "scipy_qr",
    "solve",
    "svd",
]

_CHOLESKY_FLOPS = 0.5  # operations of a Cholesky factor, over n^3
_QR_FLOPS = 4.0  # operations of a factorization, over m n min(m, n)
_EIGEN_FLOPS = 25.0  # operations of the eigenvectors of a matrix without symmetry, over n^3


def _within_deadline(function, flops):
    """The same function of matrices (..., m, n), unless its `flops` m n min(m, n) operations would end too late."""

    @functools.wraps(function)
    def bounded(A, *arguments, **options):
        *batch, m, n = np.shape(A)
        check_deadline(flops * math.prod(batch) * m * n * min(m, n))
        return function(A, *arguments, **options)

    return bounded


cho_factor = _within_deadline(scipy.linalg.cho_factor, _CHOLESKY_FLOPS)
cholesky = _within_deadline(np.linalg.cholesky, _CHOLESKY_FLOPS)
cond = _within_deadline(np.linalg.cond, SVD_FLOPS)
eig = _within_deadline(np.linalg.eig, _EIGEN_FLOPS)
eigh = _within_deadline(np.linalg.eigh, SVD_FLOPS)
eigvalsh = _within_deadline(np.linalg.eigvalsh, _QR_FLOPS)
inv = _within_deadline(np.linalg.inv, _QR_FLOPS)
lstsq = _within_deadline(np.linalg.lstsq, SVD_FLOPS)
matrix_rank = _within_deadline(np.linalg.matrix_rank, SVD_FLOPS)
null_space = _within_deadline(scipy.linalg.null_space, SVD_FLOPS)
orth = _within_deadline(scipy.linalg.orth, SVD_FLOPS)
pinv = _within_deadline(np.linalg.pinv, SVD_FLOPS)
qr = _within_deadline(np.linalg.qr, _QR_FLOPS)
scipy_cholesky = _within_deadline(scipy.linalg.cholesky, _CHOLESKY_FLOPS)
scipy_lstsq = _within_deadline(scipy.linalg.lstsq, SVD_FLOPS)
scipy_qr = _within_deadline(scipy.linalg.qr, _QR_FLOPS)
solve = _within_deadline(np.linalg.solve, _QR_FLOPS)
