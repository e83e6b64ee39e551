"""First-layer shifts, and how wide the second layer is, from the null space of Taylor coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg.packing import insertion, packing_weights
from skident.oracle import NotIdentified

from ..kernel.charts import exponents

__all__ = ["TaylorBiases", "biases_from_taylor"]

_SPARE = 2  # rows more than the rank that a gap has to be seen by


@dataclass(frozen=True)
class TaylorBiases:
    """Shifts of a patch's free units.

    Attributes
    ----------
    theta : ndarray of shape (k,)
        Their outputs at t = 0.
    n_powers : int
        m_2.
    gap : float
        Largest singular value that should be none over the smallest that is one.
    residual : float
        Relative misfit of the linear equations for theta.
    """

    theta: np.ndarray
    n_powers: int
    gap: float
    residual: float


def biases_from_taylor(tensors, n_powers=None):
    """Shifts that make the highest Taylor coefficients sums of a few powers.

    Parameters
    ----------
    tensors : list of ndarray of shape (n, m_L, C(k + q - 1, q)), q = 0, ..., p
        Packed coefficients in ``h' = tanh t``.
    n_powers : int, default=None
        m_2, the width of the second layer; None: where the gap of the singular values is largest.

    Returns
    -------
    TaylorBiases

    Raises
    ------
    ValueError
        If there are fewer than ``m_2 + 1`` entries or too few rows.

    Notes
    -----
    In ``eta = h - theta`` the coefficients of order q at all points lie in the span of m_2 powers ``W_k^{(x) q}``, so
    all orders together have rank ``sum_q min(m_2, C(k + q - 1, q))``. A null vector N of the highest order shows as a
    null vector ``(N', L, ...)`` of all orders in h', with ``L_alpha = sum_i alpha_i theta_i N'_{alpha + e_i}``: linear
    in theta. Null vectors of order p - 1 alone are free to add to L, and are projected out.
    """
    p, rows = len(tensors) - 1, len(tensors[0]) * tensors[0].shape[1]
    k = tensors[1].shape[-1]
    blocks = [T.reshape(rows, -1) for T in tensors[1:]]
    sizes = [np.sqrt(np.mean(B**2)) + np.finfo(float).tiny for B in blocks]
    R = np.hstack([B / s for B, s in zip(blocks, sizes, strict=True)])
    R = R / np.maximum(np.linalg.norm(R, axis=1, keepdims=True), np.finfo(float).tiny)
    entries = [B.shape[1] for B in blocks]
    _, s, Vt = np.linalg.svd(R, full_matrices=True)
    s = np.concatenate([s, np.zeros(R.shape[1] - min(R.shape))])
    n_powers, gap = _width(s, entries, rows, n_powers)
    rank = sum(min(n_powers, d) for d in entries)
    top, low, beside = _null_vectors(Vt[rank:], entries, sizes, n_powers, k)
    theta, residual = _solve(top, low, beside, k, p)
    return TaylorBiases(theta, n_powers, gap, residual)


def _width(s, entries, rows, n_powers):
    """m_2 and the gap of the singular values downstream it."""
    widths = range(1, entries[-1]) if n_powers is None else [n_powers]
    ranks = {m: sum(min(m, d) for d in entries) for m in widths}
    gaps = {m: s[r] / max(s[r - 1], np.finfo(float).tiny) for m, r in ranks.items() if r + _SPARE <= rows}
    if not gaps or (n_powers is not None and n_powers >= entries[-1]):
        raise NotIdentified(
            "second layer", "rank", f"{rows} rows of {entries[-1]} coefficients are too few to tell {n_powers} units."
        )
    best = min(gaps, key=gaps.get)
    return best, float(gaps[best])


def _null_vectors(N, entries, sizes, n_powers, k):
    """Null vectors by monomials of the two highest orders: (v, n_p), (v, n_{p-1}); and those of order p - 1 alone."""
    p, n_top = len(entries), entries[-1] - n_powers
    ends = np.cumsum(entries)
    left = np.linalg.svd(N[:, ends[-2] :], full_matrices=True)[0]
    N = left.T @ N
    top = N[:n_top, ends[-2] :] / (packing_weights(k, p) * sizes[-1])
    middle = slice(ends[-3] if p > 2 else 0, ends[-2])
    low = N[:n_top, middle] / (packing_weights(k, p - 1) * sizes[-2])
    lower = N[n_top:, middle]
    n_beside = max(0, entries[-2] - n_powers)
    beside = np.linalg.svd(lower, full_matrices=False)[2][:n_beside] if n_beside else lower[:0]
    return top, low, beside * (1.0 / sizes[-2])


def _solve(top, low, beside, k, p):
    """theta by least squares, and the relative misfit."""
    raised = top[:, insertion(k, p - 1)]  # (v, n_{p-1}, k)
    weights = packing_weights(k, p - 1)
    A = raised * exponents(k, p - 1) * weights[:, None]
    y = low * weights
    if len(beside):
        Q = np.linalg.qr(beside.T)[0]
        A = A - np.einsum("ab,nbk->nak", Q @ Q.T, A)
        y = y - y @ Q @ Q.T
    A, y = A.reshape(-1, k), y.ravel()
    theta = np.linalg.lstsq(A, y, rcond=None)[0]
    return theta, float(np.linalg.norm(A @ theta - y) / max(np.linalg.norm(y), np.finfo(float).tiny))
