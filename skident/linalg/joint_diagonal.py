"""Joint diagonalization of symmetric matrices by Jacobi rotations."""

from __future__ import annotations

import itertools

import numpy as np

from skident.budget import check_deadline

__all__ = ["joint_diagonalizer"]

_MAX_SWEEPS = 30  # of Jacobi rotations, which converge quadratically: ten suffice mostly
_CONVERGED = 1e-10  # largest sine of a sweep after which the next one is rounding


def joint_diagonalizer(N):
    """Orthogonal Q (k, k) minimizing the squared off-diagonal entries of all ``Q N_m Q^T``, N (m, k, k) symmetric.

    Jacobi rotations, ``O(m k^3)`` per sweep. Source: Cardoso and Souloumiac (1996), Jacobi angles for simultaneous
    diagonalization.
    """
    N, k = N.copy(), N.shape[1]
    Q = np.eye(k)
    for _ in range(_MAX_SWEEPS):
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
        if turned < _CONVERGED:
            break
    return Q
