"""Mean and standard deviation of columns, without overflow."""

import numpy as np

from skident.budget.constants import CONSTANT_TOL


def column_units(A, constant=1.0, weights=None):
    """Mean and standard deviation of every column, also if squares of its entries overflow or underflow.

    Parameters
    ----------
    A : ndarray of shape (n, k)
    constant : float, default=1.0
        Returned as the standard deviation of a constant column.
    weights : ndarray of shape (n,), default=None
        Weights of the rows.

    Returns
    -------
    mean, unit : ndarray of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import column_units
    >>> print(*column_units(np.array([[0.0, 7.0], [2.0, 7.0]])))
    [1. 7.] [1. 1.]
    """
    exponent = np.frexp(np.abs(A).max(axis=0))[1]
    B = np.ldexp(A, -exponent)  # powers of two change no digit
    mean = np.average(B, axis=0, weights=weights)
    std = np.sqrt(np.average((B - mean) ** 2, axis=0, weights=weights))
    varies = std > CONSTANT_TOL * np.abs(B).max(axis=0)
    return np.ldexp(mean, exponent), np.where(varies, np.ldexp(std, exponent), constant)


def root_mean_squares(A, weights=None):
    """Root mean square of each column of A (n, k), 1 for columns of zeros; `weights` (n,) are those of the rows."""
    size = np.sqrt(np.average(A**2, axis=0, weights=weights))
    return np.where(size > 0, size, 1.0)
