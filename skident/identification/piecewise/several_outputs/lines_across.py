"""Lines that cross the boundary of a missing unit of the second layer, from the residual of the known units."""

import numpy as np

from skident.linalg import lapack, svd

_RESIDUAL = 1e-6  # relative, of outputs that are linear in the first layer's: no missing unit is inactive at a sample
_RADIUS = 30.0  # standard deviations of points, at which the bias matters little
_POINTS = 2000  # of them: the unit is inactive at some


def line_across_missing(W, b, X, left, rng):
    """Origin and direction (D,) of a line that crosses the boundary of the missing unit that acts most.

    `left` (n, m_L) is the residual of the known units at samples X (n, D). The line runs from the sample at which the
    residual is least, where the unit is inactive, to the one at which it is largest. If the unit is active at all
    samples, the residual is linear in the first layer's outputs and gives its weights.
    """
    left = left - np.median(left, axis=0)
    r = left @ svd(left, full_matrices=False)[2][0]
    A = np.column_stack([np.maximum(X @ W + b, 0.0), np.ones(len(X))])
    v = lapack.lstsq(A, r, rcond=None)[0]
    if len(X) > A.shape[1] and np.abs(r - A @ v).max() < _RESIDUAL * np.abs(r).max():
        X = _RADIUS * rng.standard_normal((_POINTS, len(W)))
        r = np.maximum(X @ W + b, 0.0) @ v[:-1]
    low, high = X[np.argmin(r)], X[np.argmax(r)]
    return low, high - low
