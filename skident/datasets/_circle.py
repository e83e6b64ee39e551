"""Points on a circle with alternating signs: data from which rank two escapes faster than rank one."""

from __future__ import annotations

import numpy as np

from ._checks import check_count

__all__ = ["make_alternating_circle"]


def make_alternating_circle(n_samples=8):
    """Points evenly spaced on the unit circle, with signs that alternate from one to the next.

    ``x_j = (sin(2 pi j / N), cos(2 pi j / N))`` and ``y_j = (-1)^j`` for j = 1, ..., N. With y as the gradient G of the
    loss at zero output, networks of depth three escape the origin fastest in a direction that is not of rank one: for
    N = 8 the speed is 1/2, and ``sqrt(2) - 1`` with rank one. Speeds are sums over the points.

    Parameters
    ----------
    n_samples : int, default=8
        N, even, so that the signs alternate all around.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        Multiples of a right angle are exact.
    y : ndarray of shape (n_samples,)

    Raises
    ------
    ValueError
        If N is odd or below 2.

    References
    ----------
    .. [1] I. Bantzis, J. B. Simon, A. Jacot, "Saddle-to-saddle dynamics in deep ReLU networks: low-rank bias in the
       first saddle escape", 2025, Example 1.

    Examples
    --------
    >>> from skident.datasets import make_alternating_circle
    >>> X, y = make_alternating_circle(8)
    >>> print(X.shape, int(y.sum()))
    (8, 2) 0
    """
    n = check_count("n_samples", n_samples, minimum=2)
    if n % 2:
        raise ValueError(f"n_samples must be even, so that the signs alternate all around the circle; got {n}.")
    j = np.arange(1, n + 1)
    X = np.column_stack([np.sin(2 * np.pi * j / n), np.cos(2 * np.pi * j / n)])
    # sin(pi) is 1e-16 in floating point, which would put a point on the wrong side of an activation boundary.
    X[np.abs(X) < 1e-15] = 0.0
    return X, (-1.0) ** j
