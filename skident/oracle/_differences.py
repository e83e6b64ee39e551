"""Central differences of a batched function, no point asked twice."""

from __future__ import annotations

import numpy as np


def difference_jacobian(function, U, step):
    """``(f(u + h e_i) - f(u - h e_i)) / 2h`` at the rows of U.

    Parameters
    ----------
    function : callable
        (n, D) to (n, m_L).
    U : ndarray of shape (n, D)
    step : float

    Returns
    -------
    ndarray of shape (n, m_L, D)
    """
    n, D = U.shape
    offsets = np.concatenate([step * np.eye(D), -step * np.eye(D)])
    F = _at_offsets(function, U, offsets)
    return np.moveaxis((F[:, :D] - F[:, D:]) / (2.0 * step), 1, 2)


def hessian_offsets(n_features, step):
    """The ``2 D^2 + 1`` different points of eq. (19) around one centre.

    Returns
    -------
    offsets : ndarray of shape (2 D^2 + 1, D)
        First the centre, then ``+-2 h e_i``, then for i < j the four corners ``+-h e_i +- h e_j``.
    """
    D = n_features
    rows, cols = np.triu_indices(D, 1)
    eye = step * np.eye(D)
    corners = [s * eye[rows] + t * eye[cols] for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    return np.concatenate([np.zeros((1, D)), 2.0 * eye, -2.0 * eye, *corners])


def difference_hessian(function, U, step):
    """Hessians by the paper's central differences.

    Parameters
    ----------
    function : callable
        (n, D) to (n, m_L).
    U : ndarray of shape (n, D)
    step : float

    Returns
    -------
    ndarray of shape (n, m_L, D, D)
        Symmetric. ``2 D^2 + 1`` queries a row: the corners of (i, j) serve (j, i), and the diagonal's two middle points
        are the centre.

    Notes
    -----
    Source: eq. (19) of Fiedler et al. (2021).
    """
    n, D = U.shape
    F = _at_offsets(function, U, hessian_offsets(D, step))
    m_out = F.shape[2]
    H = np.empty((n, m_out, D, D))
    outer = F[:, 1 : 1 + D] + F[:, 1 + D : 1 + 2 * D] - 2.0 * F[:, :1]
    diagonal = np.arange(D)
    H[:, :, diagonal, diagonal] = np.swapaxes(outer, 1, 2)
    pp, pm, mp, mm = np.split(F[:, 1 + 2 * D :], 4, axis=1)
    rows, cols = np.triu_indices(D, 1)
    H[:, :, rows, cols] = np.swapaxes(pp - pm - mp + mm, 1, 2)
    H[:, :, cols, rows] = H[:, :, rows, cols]
    return H / (4.0 * step * step)


def _at_offsets(function, U, offsets):
    """Values at every row of U plus every offset, (n, k, m_L), a bounded number of rows of U at a time."""
    n, D = U.shape
    k = len(offsets)
    block = max(1, 2**18 // k)
    parts = []
    for i in range(0, n, block):
        rows = U[i : i + block]
        F = function((rows[:, None, :] + offsets[None]).reshape(-1, D))
        parts.append(F.reshape(len(rows), k, -1))
    return np.concatenate(parts)
