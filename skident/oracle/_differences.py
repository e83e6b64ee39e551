"""Central differences of a batched function for Jacobians and Hessians, each point evaluated once."""

import numpy as np

from skident.budget import rows_at_once

_COPIES = 2  # arrays as large as a block of points: the points, and the standardized ones


def difference_jacobian(function, U, step):
    """Jacobians ``(f(u + h e_i) - f(u - h e_i)) / 2h``, (n, m_L, D), at the rows of U (n, D)."""
    D = U.shape[1]
    axes, ones = np.arange(D), np.ones(D)
    i, a = np.tile(axes, 2), np.concatenate([ones, -ones])
    F = _at_stencil(function, U, (i, i, a, 0.0 * a), step)
    return np.moveaxis((F[:, :D] - F[:, D:]) / (2.0 * step), 1, 2)


def hessian_stencil(n_features):
    """The ``2 D^2 + 1`` different points of eq. (19) around one center, in units of the step.

    Arrays i, j, a, b: offset k is ``a[k] e_{i[k]} + b[k] e_{j[k]}``. First the center, then ``+-2 e_i``, then for i < j
    the four corners ``+-e_i +- e_j``.
    """
    axes, twos = np.arange(n_features), np.full(n_features, 2.0)
    rows, cols = np.triu_indices(n_features, 1)
    ones = np.ones(len(rows))
    i = np.concatenate([[0], axes, axes, *[rows] * 4])
    j = np.concatenate([[0], axes, axes, *[cols] * 4])
    a = np.concatenate([[0.0], twos, -twos, ones, ones, -ones, -ones])
    b = np.concatenate([[0.0], 0.0 * twos, 0.0 * twos, ones, -ones, ones, -ones])
    return i, j, a, b


def difference_hessian(function, U, step):
    """Hessians (n, m_L, D, D) by the central differences of eq. (19) of Fiedler et al. (2021).

    ``2 D^2 + 1`` queries per row of U (n, D): the corners of (i, j) also serve (j, i), and the two middle points of a
    diagonal entry are the center.
    """
    n, D = U.shape
    F = _at_stencil(function, U, hessian_stencil(D), step)
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


def _at_stencil(function, U, stencil, step):
    """Values (n, k, m_L) at every row of U plus every offset, a bounded number of points at a time."""
    i, j, a, b = stencil
    (n, D), k = U.shape, len(i)
    block = rows_at_once(_COPIES * 8 * D)
    parts = []
    for first in range(0, n * k, block):
        row, entry = np.divmod(np.arange(first, min(first + block, n * k)), k)
        points, every_row = U[row], np.arange(len(row))
        points[every_row, i[entry]] += step * a[entry]
        points[every_row, j[entry]] += step * b[entry]
        parts.append(function(points))
    return np.concatenate(parts).reshape(n, k, -1)
