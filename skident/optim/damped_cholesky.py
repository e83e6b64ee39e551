"""Cholesky factors of matrices that are positive semidefinite up to rounding."""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = ["damped_cholesky"]

_GROWTH = 10.0  # of the damping if the matrix is not positive definite
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
    most = _MOST * max(float(np.mean(np.diag(matrix))), np.finfo(float).tiny)
    while True:
        damped = matrix.copy(order="F")
        damped.flat[:: len(damped) + 1] += damping
        try:
            return scipy.linalg.cho_factor(damped, lower=False, overwrite_a=True, check_finite=False)[0], damping
        except np.linalg.LinAlgError:
            if not damping < most:
                raise
            damping *= _GROWTH
