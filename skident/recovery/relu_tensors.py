"""Units of a depth-2 ReLU network from the Hermite coefficient tensors of its function.

The function is ``f(x) = sum_i a_i relu(w_i . x + b_i)`` of standard normal x in ``R^D`` with unit columns w_i of
W (D, m); its tensors ``T_k = E[f(x) He_k(x)]`` are packed as in :mod:`skident.linalg.symmetric_tensors`, in a dict by
their order. For k >= 2 they stay the same when the sign of (w_i, b_i) changes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from skident.linalg import hermite_polynomials, symmetric_power

__all__ = ["population_tensors", "relu_coefficients"]

_ROOT_2PI = np.sqrt(2.0 * np.pi)


def relu_coefficients(b, order):
    """``c_k(b) = E[relu(z + b) He_k(z)]`` for k = 0, ..., order, stacked in front: (order + 1, ...).

    ``c_0 = b Phi(b) + phi(b)``, ``c_1 = Phi(b)`` and ``c_k = (-1)^k He_{k-2}(b) phi(b)`` beyond: each is the derivative
    of the one before.

    Parameters
    ----------
    b : array-like of any shape
    order : int

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations. Lemma 3.5.

    Examples
    --------
    >>> from skident.recovery import relu_coefficients
    >>> print(relu_coefficients(0.0, 4).round(4))
    [ 0.3989  0.5     0.3989 -0.     -0.3989]
    """
    b = np.asarray(b, dtype=np.float64)
    phi, Phi = np.exp(-0.5 * b * b) / _ROOT_2PI, ndtr(b)
    signs = (-1.0) ** np.arange(max(order - 1, 1))
    curved = signs.reshape(-1, *[1] * b.ndim) * hermite_polynomials(max(order - 2, 0), b) * phi
    return np.concatenate([(b * Phi + phi)[None], Phi[None], curved])[: order + 1]


def population_tensors(W, b, a, order):
    """Packed tensors ``T_k = sum_i a_i c_k(b_i) w_i^{(x) k}`` for k = 0, ..., order.

    Parameters
    ----------
    W : array-like of shape (D, m)
        Unit columns.
    b, a : array-like of shape (m,)
    order : int
        The highest k.

    Returns
    -------
    dict of int to ndarray
        ``T[k]`` has shape ``(C(D + k - 1, k),)``.

    Raises
    ------
    ValueError
        If the shapes do not fit or a column of W does not have norm 1.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations. Lemma 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.recovery import population_tensors
    >>> T = population_tensors(np.eye(2), np.zeros(2), np.ones(2), 2)
    >>> print((T[2] * np.sqrt(2 * np.pi)).round(6))
    [1. 0. 1.]
    """
    W, b, a = (np.asarray(x, dtype=np.float64) for x in (W, b, a))
    if W.ndim != 2 or b.shape != (W.shape[1],) or a.shape != b.shape:
        raise ValueError(f"W must be (D, m), b and a (m,), got shapes {W.shape}, {b.shape} and {a.shape}.")
    norms = np.linalg.norm(W, axis=0)
    if not np.all(np.abs(norms - 1.0) < 1e-8):
        raise ValueError(
            f"the columns of W must have norm 1, got norms from {norms.min():.3g} to {norms.max():.3g}; divide w and b "
            "by it and multiply a with it."
        )
    c = a * relu_coefficients(b, order)
    return {k: c[k] @ symmetric_power(W.T, k) for k in range(order + 1)}
