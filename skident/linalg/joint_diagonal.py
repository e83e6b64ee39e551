"""The rotation that diagonalises several symmetric matrices at once."""

from __future__ import annotations

import itertools

import numpy as np

from skident.budget import check_deadline

__all__ = ["joint_diagonaliser"]

_SWEEPS = 30  # of Jacobi rotations


def joint_diagonaliser(N):
    """Orthogonal Q that minimises the squared off-diagonal entries of all ``Q N_m Q^T``, by Jacobi rotations.

    Parameters
    ----------
    N : ndarray (m, k, k)
        Symmetric.

    Returns
    -------
    ndarray (k, k)

    Notes
    -----
    Source: Cardoso, Souloumiac (1996), "Jacobi angles for simultaneous diagonalization". Cost: ``O(m k^3)`` a sweep.
    """
    N, k = N.copy(), N.shape[1]
    Q = np.eye(k)
    for _ in range(_SWEEPS):
        check_deadline()
        turned = 0.0
        for p, q in itertools.combinations(range(k), 2):
            g = np.stack([N[:, p, p] - N[:, q, q], 2.0 * N[:, p, q]])
            G = g @ g.T
            on, off = G[0, 0] - G[1, 1], 2.0 * G[0, 1]
            angle = 0.5 * np.arctan2(off, on + np.hypot(on, off))
            c, s = np.cos(angle), np.sin(angle)
            R = np.array([[c, s], [-s, c]])
            pair = [p, q]
            N[:, pair] = R @ N[:, pair]
            N[:, :, pair] = N[:, :, pair] @ R.T
            Q[pair] = R @ Q[pair]
            turned = max(turned, abs(s))
        if turned < 1e-10:
            break
    return Q
