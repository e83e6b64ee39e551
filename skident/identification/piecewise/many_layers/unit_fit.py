"""Weights of a unit from its critical points: all of them, or those that one more determines."""

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack, svd

from ...constants import INDEPENDENT_NORMALS, NORMAL_WEIGHT

_NORMALS = 120  # of a unit that refine it (budget)
_TRIMMED = 20.0  # median residuals beyond which a critical point is another unit's
_LEAST_RESIDUAL = 1e-11  # that is no rounding
_TRIMMINGS = 3  # of these
_INACTIVE = 1e-9  # norm of the outputs of an input that is inactive at all critical points
_UNDETERMINED = 1e-6  # singular value over the largest of a direction that is not determined
_UNDETERMINED_RATIO = 30.0  # `_UNDETERMINED` over the smallest
_UNKNOWN = 1e-4  # part of a weight in these directions above which it is unknown
_INDEPENDENT_NORMAL = 1e-7  # `INDEPENDENT_NORMALS` of gradients and a normal
_FITS = 1e-6  # residual of the equations of a critical point that is the unit's


def fitted_unit(H, A, N, depth=0):
    """Weights (m,) of norm 1, bias, mask of the known ones and of the points used (n,); None if no unit fits.

    A unit vanishes at points where the outputs before it are H (n, m), and has normals N (q, D) at the first q of
    them, with gradients A (q, m, D) of these outputs.
    """
    m = H.shape[1]
    size = np.sqrt(1.0 + np.sum(H**2, axis=1))
    rows = np.vstack([np.column_stack([H, np.ones(len(H))]) / size[:, None], _normal_rows(A[:_NORMALS], N[:_NORMALS])])
    norms = np.linalg.norm(rows, axis=0)
    columns = np.append(norms[:m] > _INACTIVE, True)
    M = rows[:, columns] / norms[columns]
    if len(M) < M.shape[1]:
        return None
    x, unknown = _null_vector(M)
    if unknown[-1]:
        return None
    w, known = np.zeros(m + 1), np.zeros(m + 1, dtype=bool)
    w[columns], known[columns] = np.where(unknown, 0.0, x / norms[columns]), ~unknown
    length = np.linalg.norm(w[:m])
    if length == 0.0:
        return None
    residual = np.abs((H @ w[:m] + w[m]) / size) / length
    good = residual <= max(_TRIMMED * np.median(residual), _LEAST_RESIDUAL)
    if not good.all() and depth < _TRIMMINGS and good.mean() > 0.5:
        return fitted_unit(H[good], A[good[: len(A)]], N[good[: len(N)]], depth + 1)
    return w[:m] / length, w[m] / length, known[:m]


def _normal_rows(A, N):
    """Equations (m, m + 1) of a unit whose gradient is along the normals N (q, D): the triangular factor of all."""
    m = A.shape[1]
    B = np.swapaxes(A, 1, 2)
    R = (B - N[:, :, None] * np.einsum("nd,ndm->nm", N, B)[:, None]).reshape(-1, m)
    R = lapack.qr(np.vstack([R, np.zeros((m, m))]), mode="r")
    return NORMAL_WEIGHT * np.column_stack([R, np.zeros(len(R))])


def _null_vector(M):
    """The vector with the least ``|M x|``, and which of its entries others of nearly the least change."""
    _, s, Vt = svd(M, full_matrices=False)
    loose = s[:-1] < max(_UNDETERMINED * s[0], _UNDETERMINED_RATIO * s[-1])
    unknown = np.abs(Vt[:-1][loose]).max(axis=0, initial=0.0) > _UNKNOWN
    return Vt[-1], unknown


def with_weights_at(w, b, mask, point):
    """Weights and mask of a unit after a critical point (h, A, n) that fits it, with the weights of all inputs there.

    The point has outputs h (m,) with gradients A (m, D) of the layer before, and a normal n (D,). None if it does not
    fit, or leaves no equation that would show it.
    """
    h, A, n = point
    unknown = np.flatnonzero((h != 0.0) & ~mask)
    known = w * mask
    M = np.vstack([np.column_stack([A.T @ known, *A[unknown]]), [h @ known + b, *h[unknown]]])
    M = np.column_stack([M, np.append(-n, 0.0)])
    scale = np.maximum(np.linalg.norm(M, axis=0), TINY)
    M = M / scale
    if lapack.matrix_rank(M[:, 1:], tol=INDEPENDENT_NORMALS) < M.shape[1] - 1:
        return None
    both = np.column_stack([A.T / max(np.abs(A).max(), TINY), n])
    if lapack.matrix_rank(both, tol=_INDEPENDENT_NORMAL) < M.shape[1]:
        return None
    x = lapack.lstsq(M[:, 1:], -M[:, 0], rcond=None)[0]
    if np.linalg.norm(M[:, 1:] @ x + M[:, 0]) > _FITS:
        return None
    w, mask = w.copy(), mask.copy()
    w[unknown], mask[unknown] = (x / scale[1:] * scale[0])[:-1], True
    return w, mask
