"""Cholesky factors of matrices that are positive semidefinite up to rounding."""

import numpy as np
import scipy.linalg

_DAMPING_GROWTH = 10.0  # of the damping if the matrix is not positive definite
_BLOCK = 256  # rows of a triangle that are copied at a time: they fit the cache
_MOST = 1.0  # damping over the mean diagonal, from which a matrix is no semidefinite one


def damped_cholesky(matrix, damping):
    """The upper Cholesky factor of ``A + damping I``, and the damping, enlarged until that is positive definite.

    Parameters
    ----------
    matrix : ndarray of shape (P, P)
        Only its upper triangle is read.
    damping : float
        Above 0.

    Returns
    -------
    factor : ndarray of shape (P, P)
        For ``scipy.linalg.cho_solve((factor, False), ...)``; its lower triangle is arbitrary.
    damping : float

    Raises
    ------
    numpy.linalg.LinAlgError
        If the damping would exceed the mean diagonal entry.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim.damped_cholesky import damped_cholesky
    >>> factor, damping = damped_cholesky(np.array([[1.0, 1.0 + 1e-9], [0.0, 1.0]]), 1e-10)
    >>> print(damping)
    1e-08
    """
    kept = np.array(matrix.T, order="F")  # its lower triangle is the upper one of A
    return kept, factor_in_place(kept, np.diag(kept).copy(), damping)


def factor_in_place(matrix, diagonal, damping):
    """The same in the upper triangle of an array, whose lower one holds A and can be factored again.

    `matrix` (P, P) is Fortran-ordered, A its strict lower triangle and `diagonal` (P,). Returns the damping.
    """
    most = _MOST * max(float(np.mean(diagonal)), np.finfo(float).tiny)
    (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (matrix,))
    while True:
        _mirror_lower_triangle(matrix)
        np.fill_diagonal(matrix, diagonal + matrix.dtype.type(damping))
        if potrf(matrix, lower=False, overwrite_a=True, clean=False)[1] == 0:
            return damping
        if not damping < most:
            raise np.linalg.LinAlgError(f"not positive definite with a damping of {damping:.1e}")
        damping *= _DAMPING_GROWTH


def _mirror_lower_triangle(matrix):
    """Overwrite the strict upper triangle by the lower one, block by block."""
    for first in range(0, len(matrix), _BLOCK):
        rows, after = slice(first, first + _BLOCK), slice(first + _BLOCK, None)
        below = np.tril(matrix[rows, rows], -1)
        matrix[rows, rows] = below + below.T
        matrix[rows, after] = matrix[after, rows].T
