"""Starts for units from the Hermite coefficients of orders two to four, and the fit of many starts at once."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import ROOT_2PI
from skident.linalg import flatten_symmetric, smat, symmetric_power

from .paper.scalars import relu_coefficients
from .tensor_fit import refine_by_moments

__all__ = ["fit_candidates", "moment_candidates", "units_tensors"]

ORDERS = (2, 3, 4)  # of the tensors that are fitted; order 1 gives the linear part
_SHORT = 12  # steps of all candidates (budget)
_LONG = 60  # steps of the better half of the candidates (budget)
_FAR = 2.5  # biases of starts are kept within


def units_tensors(U, b, a):
    """Packed tensors of orders 2 to 4 of ``sum_i a_i relu(u_i . z + b_i)``, Lemma 3.5, for rows of any length.

    U (m, p), b, a (m,).
    """
    c = a * relu_coefficients(b, ORDERS[-1])
    return {k: c[k] @ symmetric_power(U, k) for k in ORDERS}


def fit_candidates(tensors, W, b, a):
    """`refine_by_moments` of many candidates, of which the better half goes on after a few steps.

    W (c, p, m), b, a (c, m).
    """
    if len(W) > 3:
        W, b, a, loss = refine_by_moments(tensors, W, b, a, max_iter=_SHORT)
        order = np.argsort(loss, kind="stable")[: -(-len(W) // 2)]
        W, b, a = W[order], b[order], a[order]
    W, b, a, loss = refine_by_moments(tensors, W, b, a, max_iter=_LONG)
    order = np.argsort(loss, kind="stable")
    return W[order], b[order], a[order], loss[order]


def _values(tensors, U, k):
    """``T_k(u, ..., u)`` for every row, (..., m)."""
    return symmetric_power(U, k) @ tensors[k]


def _scalars(tensors, U):
    """Biases and output weights that go with directions: least squares for every order, then ``b = -c_3 / c_2``."""
    G = U @ U.swapaxes(-1, -2)
    ridge = 1e-6 * np.eye(U.shape[1])
    c = {k: np.linalg.solve(G**k + ridge, _values(tensors, U, k)[..., None])[..., 0] for k in (2, 3)}
    small = 1e-9 * np.abs(c[2]).max(axis=-1, keepdims=True) + np.finfo(float).tiny
    b = np.clip(-c[3] / np.where(np.abs(c[2]) < small, small, c[2]), -_FAR, _FAR)
    a = c[2] * ROOT_2PI * np.exp(0.5 * b * b)
    bound = 10.0 * np.median(np.abs(a), axis=-1, keepdims=True)
    return b, np.clip(a, -bound, bound)


def _pencils(tensors, p, n_draws, rng):
    """Eigenvectors of ``(alpha T_3(v) + (1 - alpha) T_4(V)) T_2^-1`` for random v, V, alpha: a joint pencil a draw."""
    second = smat(tensors[2], p)
    third, fourth = flatten_symmetric(tensors[3], p, (2, 1)), flatten_symmetric(tensors[4], p, (2, 2))
    third = smat(rng.standard_normal((n_draws, p)) @ third.T, p)
    fourth = smat(rng.standard_normal((n_draws, len(fourth))) @ fourth, p)
    share = rng.uniform(size=(n_draws, 1, 1))
    third, fourth = (M / np.linalg.norm(M, axis=(1, 2), keepdims=True) for M in (third, fourth))
    values, vectors = np.linalg.eig((share * third + (1.0 - share) * fourth) @ np.linalg.pinv(second))
    # A complex pair spans a plane: its real and imaginary part take the place of the two.
    rows = np.where((values.imag < 0)[:, None], vectors.imag, vectors.real).swapaxes(1, 2)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def moment_candidates(tensors, p, n_units, n_candidates, rng):
    """Starts for :func:`fit_candidates`.

    Returns W (n_candidates, p, n_units), b, a (n_candidates, n_units).
    """
    n_pencils = -(-n_candidates // 2) if n_units == p else 0
    U = rng.standard_normal((n_candidates, n_units, p))
    U /= np.linalg.norm(U, axis=-1, keepdims=True)
    if n_pencils:
        U[:n_pencils] = _pencils(tensors, p, n_pencils, rng)
    return U.swapaxes(1, 2), *_scalars(tensors, U)
