"""Distance of linear subspaces."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array

from skident.linalg import svd

__all__ = ["subspace_distance"]


def _orthonormal_basis(basis, name):
    """Orthonormal basis (q, m) of the columns' span; refuses columns that are not linearly independent."""
    basis = check_array(basis, dtype=np.float64, input_name=name)
    scale = np.abs(basis).max(axis=0)
    columns = basis / np.where(scale > 0, scale, 1.0)
    norms = np.linalg.norm(columns, axis=0)
    Q, R = np.linalg.qr(columns / np.where(norms > 0, norms, 1.0))
    singular_values = svd(R, compute_uv=False)
    tolerance = singular_values[0] * max(basis.shape) * np.finfo(np.float64).eps
    rank = int(np.count_nonzero(singular_values > tolerance))
    if rank < basis.shape[1]:
        raise ValueError(
            f"{name} has {basis.shape[1]} columns of length {basis.shape[0]} but rank {rank}; expected linearly "
            "independent columns. Pass a basis (the vectors as columns), for example from scipy.linalg.orth."
        )
    return Q


def subspace_distance(A, B):
    """Distance of the column spans of two matrices, per dimension.

    Computes ``||P_A - P_B||_F / sqrt(m)``, where P_A and P_B are the orthogonal projections onto the column spans.
    The projections themselves (q, q) are never formed: for orthonormal bases Q_A and Q_B the squared norm is
    ``||Q_A - Q_B Q_B^T Q_A||_F^2 + ||Q_B - Q_A Q_A^T Q_B||_F^2``, which also keeps tiny distances accurate.

    Parameters
    ----------
    A : array-like of shape (q, m)
        Basis of the first subspace as columns, not necessarily orthonormal.
    B : array-like of shape (q, m_B)
        Basis of the second subspace. Where ``m_B != m``, the larger of the two takes the place of m.

    Returns
    -------
    float
        Between 0 (equal subspaces) and sqrt(2) (orthogonal ones of equal dimension).

    Raises
    ------
    ValueError
        If an entry is not finite, if the columns of A or B are linearly dependent, or if their lengths differ.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.1.

    Examples
    --------
    >>> from skident.metrics import subspace_distance
    >>> print(round(subspace_distance([[1.0], [0.0]], [[2.0], [2.0]]), 6))
    1.0
    """
    Q_A, Q_B = _orthonormal_basis(A, "A"), _orthonormal_basis(B, "B")
    if Q_A.shape[0] != Q_B.shape[0]:
        raise ValueError(
            f"A and B must hold vectors of one length as columns, got {Q_A.shape[0]} and {Q_B.shape[0]} rows; "
            "transpose the one that holds its vectors as rows."
        )
    overlap = Q_B.T @ Q_A
    residual = np.hypot(np.linalg.norm(Q_A - Q_B @ overlap), np.linalg.norm(Q_B - Q_A @ overlap.T))
    return float(residual / np.sqrt(max(Q_A.shape[1], Q_B.shape[1])))
