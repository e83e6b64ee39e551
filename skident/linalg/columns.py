"""Where the columns of a matrix lie, and how far they spread."""

from __future__ import annotations

import numpy as np

__all__ = ["column_units"]

_VARIES = 1e-12  # of the largest entry: below, a standard deviation is rounding


def column_units(A, constant=1.0):
    """Mean and standard deviation of every column, also of numbers whose squares overflow or vanish.

    Parameters
    ----------
    A : ndarray of shape (n, k)
    constant : float, default=1.0
        The unit of a column that does not vary.

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
    B = np.ldexp(A, -exponent)  # powers of two leave all digits
    mean, std = B.mean(axis=0), B.std(axis=0)
    varies = std > _VARIES * np.abs(B).max(axis=0)
    return np.ldexp(mean, exponent), np.where(varies, np.ldexp(std, exponent), constant)
