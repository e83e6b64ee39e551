"""Hermite coefficient tensors of a depth-2 ReLU network, and what they determine of units with known directions.

The function is ``f(x) = sum_i a_i relu(w_i . x + b_i)`` of standard normal x in ``R^D`` with unit columns w_i of
W (D, m); its tensors ``T_k = E[f(x) He_k(x)]`` are packed as in :mod:`skident.linalg.symmetric_tensors`, in a dict by
their order. For k >= 2 they stay the same when the sign of (w_i, b_i) changes.
"""

import math

import numpy as np
from scipy.special import ndtr

from skident.budget.constants import ROOT_2PI
from skident.linalg import hermite_polynomials, symmetric_power

_GOOD_GRAM = 1e-4  # ratio of a Gram matrix's eigenvalues from which on normal equations cost few digits


def relu_coefficients(b, order):
    """``c_k(b) = E[relu(z + b) He_k(z)]`` for k = 0, ..., order.

    ``c_0 = b Phi(b) + phi(b)``, ``c_1 = Phi(b)`` and ``c_k = (-1)^k He_{k-2}(b) phi(b)`` beyond: each is the
    derivative of the one before.

    Returns (order + 1, ...).
    """
    b = np.asarray(b, dtype=np.float64)
    phi, Phi = np.exp(-0.5 * b * b) / ROOT_2PI, ndtr(b)
    signs = (-1.0) ** np.arange(max(order - 1, 1))
    curved = signs.reshape(-1, *[1] * b.ndim) * hermite_polynomials(max(order - 2, 0), b) * phi
    return np.concatenate([(b * Phi + phi)[None], Phi[None], curved])[: order + 1]


def population_tensors(W, b, a, order):
    """Hermite tensors of a network ``f(x) = sum_i a_i relu(w_i . x + b_i)`` of standard normal x (Lemma 3.5 of [1]_).

    Parameters
    ----------
    W : array-like of shape (D, m)
        Columns of norm one.
    b, a : array-like of shape (m,)
    order : int
        The highest k.

    Returns
    -------
    dict of int to ndarray
        ``T_k = E[f(x) He_k(x)] = sum_i a_i c_k(b_i) w_i^{(x) k}``, packed as by :func:`skident.linalg.symmetric_power`,
        of shape ``(C(D + k - 1, k),)`` for k = 0, ..., order.

    Raises
    ------
    ValueError
        If shapes do not match, or a column of W has another norm.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan, "Efficient algorithms for learning depth-2 neural networks with
       general ReLU activations", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.samples import population_tensors
    >>> tensors = population_tensors(np.eye(2), [0.0, 1.0], [1.0, 1.0], 4)
    >>> print(tensors[1].round(3), tensors[4].shape)
    [0.5   0.841] (5,)
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


def term_coefficients(T, W, order):
    """Least squares: ``min ||T - sum_i z_i w_i^{(x) k}||`` over z.

    By the Gram matrix ``(W^T W)^k`` where that is well-conditioned, else by the packed powers themselves.

    T (C(D + k - 1, k), W (D, m); returns (m,).
    """
    powers = symmetric_power(W.T, order)
    gram = (W.T @ W) ** order
    values = np.linalg.eigvalsh(gram)
    if values[0] > _GOOD_GRAM * values[-1]:
        return np.linalg.solve(gram, powers @ T)
    return np.linalg.lstsq(powers.T, T, rcond=None)[0]


def recover_scalars(tensors, W, order=1, *, literal=False):
    """Biases and output weights that go with known directions, up to the same signs: Algorithm 2 of the paper.

    The coefficients of ``w_i^{(x) k}`` in T_k are ``a_i (-1)^k He_{k-2}(b_i) phi(b_i)``; least squares finds them,
    and the recurrence of the Hermite polynomials turns three of them into b (Lemma 4.5): ``b = -(g_{q+1} + q g_{q-1})
    / g_q`` with ``g_q`` the coefficient of order ``q + 2``.

    W (D, m); returns b (m,), a (m,).
    """
    highest = 3 if literal and order == 1 else order + 3
    # Of more units than a power has entries, the powers are linearly dependent: orders below l determine nothing.
    lowest = max(2, order)
    g = np.zeros((highest - 1, W.shape[1]))
    g[lowest - 2 :] = [term_coefficients(tensors[k], W, k) for k in range(lowest, highest + 1)]
    candidates = np.arange(order - 1 if literal or order > 2 else 0, len(g) - 1)
    # The error of q's numerator is that of g_{q+1} + q g_{q-1}, and coefficients of order k err like root of (k - 2)!.
    noise = [1.0 if literal else math.sqrt(math.factorial(q) * (2 * q + 1)) for q in candidates]
    q = candidates[np.argmax(np.abs(g[candidates]) / np.reshape(noise, (-1, 1)), axis=0)]
    unit = np.arange(g.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        b = -(g[q + 1, unit] + q * g[q - 1, unit] * (q > 0)) / g[q, unit]
    b = np.where(np.isfinite(b), b, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shapes = relu_coefficients(b, highest)[2:]
        if literal:
            a = g[q, unit] / shapes[q, unit]
        else:
            weights = np.array([(k >= lowest) / math.factorial(k) for k in range(2, highest + 1)])[:, None]
            a = np.sum(weights * shapes * g, axis=0) / np.sum(weights * shapes**2, axis=0)
    # A unit whose b is so large that its coefficients underflow has no effect on the tensors.
    return b, np.where(np.isfinite(a), a, 0.0)


def fix_signs(T1, W, b, a, *, literal=False):
    """Signs of units that are known up to the sign of (w_i, b_i): Algorithm 3 of Awasthi et al. (2021).

    Solves ``T_1 = sum_i z_i a_i w_i``. Right units have ``z_i = Phi(b_i)``, flipped ones ``Phi(b_i) - 1``; the sign
    is decided in the middle between the two, not at 0, which is next to one of them where b_i is far from 0.

    T1 (D,), W (D, m), b, a (m,); returns signs (m,), margins (m,).
    """
    D, m = W.shape
    if m > D:
        raise ValueError(f"signs of {m} units are not determined by T_1 in {D} dimensions; at most {D} are.")
    products = np.linalg.lstsq(W, T1, rcond=None)[0]
    z = np.divide(products, a, out=np.zeros(m), where=np.abs(a) > np.finfo(np.float64).tiny)
    threshold = np.zeros(m) if literal else ndtr(b) - 0.5
    signs = np.where(z < threshold, -1.0, 1.0)
    right = np.where(z < threshold, ndtr(b) - 1.0, ndtr(b))
    distance = np.maximum(np.abs(right - threshold), np.finfo(np.float64).tiny)
    return signs, np.minimum(np.abs(z - threshold) / distance, 1.0)
