"""A damped least squares step from a triangular factor."""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = ["damped_step"]


def damped_step(R, damping):
    """Minimiser of ``||A s - y||^2 + damping ||s||^2``, by QR: squares of A would lose what answers hardly tell.

    Parameters
    ----------
    R : ndarray of shape (P, P + 1) or (P + 1, P + 1)
        Upper triangular factor of ``(A, y)``.
    damping : float
        At least 0.

    Returns
    -------
    ndarray of shape (P,), or None
        None where the damped matrix is singular to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.second_layer.damped_step import damped_step
    >>> print(damped_step(np.array([[1.0, 2.0]]), 1.0))
    [1.]
    """
    P = R.shape[1] - 1
    both = np.vstack([R, np.sqrt(damping) * np.eye(P, P + 1)])
    triangle = scipy.linalg.qr(both, mode="r", overwrite_a=True, check_finite=False)[0]
    if np.abs(np.diag(triangle)[:P]).min() == 0.0:
        return None
    return scipy.linalg.solve_triangular(triangle[:P, :P], triangle[:P, P])
