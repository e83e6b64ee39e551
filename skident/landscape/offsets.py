"""Large means that can be subtracted without any rounding."""

from __future__ import annotations

import numpy as np

__all__ = ["exact_offsets"]

_LARGE = 4.0  # means beyond this many standard deviations are offsets; below, subtracting them gains no digits
_SMALLEST = 1e-290  # standard deviation; below, its power of two would underflow


def exact_offsets(X):
    """Offsets near the column means whose subtraction is exact in floating point.

    Parameters
    ----------
    X : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (d,)
        ``X - offsets`` has no rounding error in any entry. A constant column is its own offset. 0 where the mean is
        not large compared with the standard deviation, or one entry cannot be shifted exactly: then that entry, and
        with it the standard deviation, has the size of the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.offsets import exact_offsets
    >>> y = 1e13 + np.array([[0.25], [0.5], [1.0]])
    >>> print((y - exact_offsets(y)).ravel() - 0.25 + exact_offsets(y) - 1e13)
    [0.   0.25 0.75]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        means, spread = X.mean(axis=0), X.std(axis=0)
        units = np.ldexp(1.0, np.frexp(np.maximum(spread, _SMALLEST))[1])
        # Few digits are enough for an offset, and fewer digits leave more room for an exact difference.
        offsets = np.where(
            (np.abs(means) > _LARGE * spread) & (spread > _SMALLEST), units * np.round(means / units), 0.0
        )
        offsets = np.where(np.ptp(X, axis=0) == 0.0, X[0], offsets)
        shifted = X - offsets
        virtual = shifted - X
        error = (X - (shifted - virtual)) + (-offsets - virtual)  # exactly the rounding error (Knuth's two-sum)
    return np.where((error == 0.0).all(axis=0), offsets, 0.0)
