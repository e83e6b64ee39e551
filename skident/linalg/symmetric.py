"""Symmetric matrices as vectors, and subspaces of them.

Layouts: a symmetric ``A`` (D, D) is the vector ``svec(A)`` of length ``q = D (D + 1) / 2``, its upper triangle row by
row with the off-diagonal entries times ``sqrt(2)``, so that Frobenius products become dot products. A subspace of
dimension m is an orthonormal basis ``U`` (q, m).
"""

import functools
import math

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

_SQRT_2 = math.sqrt(2.0)  # weight of off-diagonal entries, which a symmetric matrix has twice
_RANK_ROUNDINGS = 50.0  # eps of the largest eigenvalue of a Gram matrix that are rounding: singular values below 1e-7


class DeficientRankError(ValueError):
    """Vectors span fewer dimensions than the requested rank, see `leading_subspace`.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import DeficientRankError, leading_subspace
    >>> try:
    ...     leading_subspace([np.diag([3.0, 2.0, 0.0])], 3)
    ... except DeficientRankError as error:
    ...     print(str(error)[:31])
    the 3 vectors span 2 dimensions
    """


def n_free_entries(n_features):
    """``D (D + 1) / 2``, the dimension of the symmetric D x D matrices.

    Parameters
    ----------
    n_features : int
        D.

    Returns
    -------
    int
    """
    return n_features * (n_features + 1) // 2


@functools.lru_cache(maxsize=32)
def _triangle(n_features):
    """Row and column of every svec entry, its weight, and for every full entry its svec position."""
    rows, cols = np.triu_indices(n_features)
    weights = np.where(rows == cols, 1.0, _SQRT_2)
    position = np.empty((n_features, n_features), dtype=np.int64)
    position[rows, cols] = position[cols, rows] = np.arange(len(rows))
    for array in (rows, cols, weights, position):
        array.flags.writeable = False
    return rows, cols, weights, position.reshape(-1)


def _triangle_like(x, n_features):
    """`_triangle` as arrays of x's namespace, dtype (float64 for whole numbers) and device."""
    xp = array_namespace(x)
    rows, cols, weights, position = _triangle(n_features)
    dtype = x.dtype if xp.isdtype(x.dtype, "real floating") else xp.float64
    if is_numpy_namespace(xp):
        return rows, cols, weights.astype(dtype, copy=False), position
    where = device(x)
    return (
        xp.asarray(rows.copy(), device=where),
        xp.asarray(cols.copy(), device=where),
        xp.asarray(weights.copy(), dtype=dtype, device=where),
        xp.asarray(position.copy(), device=where),
    )


def svec(A):
    """Symmetric matrices (..., D, D) to vectors (..., q), keeping Frobenius products.

    Parameters
    ----------
    A : array of shape (..., D, D)
        Symmetric matrices; only the upper triangle is read.

    Returns
    -------
    array of shape (..., D (D + 1) / 2)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import svec
    >>> A = np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> print(float(svec(A) @ svec(A)))
    18.0
    """
    xp = array_namespace(A)
    D = A.shape[-1]
    rows, cols, weights, _ = _triangle_like(A, D)
    flat = xp.reshape(A, (*A.shape[:-2], D * D))
    return xp.take(flat, rows * D + cols, axis=-1) * weights


def smat(s, n_features):
    """Vectors (..., q) back to symmetric matrices (..., D, D): the inverse of `svec`.

    Parameters
    ----------
    s : array of shape (..., q)
    n_features : int
        D, with ``q = D (D + 1) / 2``.

    Returns
    -------
    array of shape (..., D, D)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import smat, svec
    >>> A = np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> print(float(np.abs(smat(svec(A), 2) - A).max()))
    0.0
    """
    xp = array_namespace(s)
    _, _, weights, position = _triangle_like(s, n_features)
    full = xp.take(s / weights, position, axis=-1)
    return xp.reshape(full, (*s.shape[:-1], n_features, n_features))


def svec_outer(u):
    """``svec(u u^T)`` of the rows of u (n, D): (n, q), without forming the matrices.

    Parameters
    ----------
    u : array of shape (n, D)

    Returns
    -------
    array of shape (n, q)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import svec_outer
    >>> print(round(float(np.linalg.norm(svec_outer(np.array([[0.6, 0.8]])))), 12))
    1.0
    """
    xp = array_namespace(u)
    rows, cols, weights, _ = _triangle_like(u, u.shape[-1])
    return xp.take(u, rows, axis=-1) * xp.take(u, cols, axis=-1) * weights


def leading_subspace(chunks, rank):
    """Leading right singular subspace of a tall or wide matrix given by blocks of rows.

    Parameters
    ----------
    chunks : sequence of arrays of shape (n_i, q)
        Rows, for example vectorized Hessians; ``n = sum(n_i)``.
    rank : int
        Dimension wanted; at most ``min(n, q)``.

    Returns
    -------
    basis : array of shape (q, rank)
        Orthonormal columns.
    singular_values : array of shape (min(n, q),)
        All singular values, descending.

    Raises
    ------
    ValueError
        If `rank` exceeds ``min(n, q)`` or the numerical rank: the number of singular values above about 1e-7 of the
        largest (in float64; 2e-3 in float32).

    Notes
    -----
    The eigenvectors of the smaller Gram matrix are taken: ``n x n`` when n <= q, else ``q x q`` accumulated chunk by
    chunk. Cost ``O(n q min(n, q) + min(n, q)^3)``; beyond the chunks (joined to one array when n <= q) memory is two
    ``min(n, q)`` squares. Singular values below about 1e-8 of the largest are rounding.
    Source: Algorithm 1 of Fiedler et al. (2021), steps 4 and 5.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import leading_subspace
    >>> M = np.diag([3.0, 2.0, 0.0])
    >>> basis, values = leading_subspace([M], 2)
    >>> print(round(float(values[1]), 12))
    2.0
    """
    xp = array_namespace(*chunks)
    n, q = sum(c.shape[0] for c in chunks), chunks[0].shape[1]
    if not 1 <= rank <= min(n, q):
        raise DeficientRankError(
            f"the dimension of a subspace of {n} vectors of length {q} is 1 to {min(n, q)}, not {rank}. Sample more "
            "matrices or lower the dimension."
        )
    wide = n <= q
    if wide:
        M = xp.concat(list(chunks), axis=0) if len(chunks) > 1 else chunks[0]
        gram = M @ M.T
    else:
        gram = sum(c.T @ c for c in chunks)
    values, vectors = xp.linalg.eigh(gram)
    values, vectors = xp.flip(values, axis=0), xp.flip(vectors, axis=1)
    singular = xp.sqrt(xp.clip(values, 0.0, None))
    floor = float(singular[0]) * math.sqrt(_RANK_ROUNDINGS * float(xp.finfo(values.dtype).eps))
    if not float(singular[rank - 1]) > floor:
        seen = int(xp.count_nonzero(singular > floor))
        raise DeficientRankError(
            f"the {n} vectors span {seen} dimensions, fewer than the {rank} wanted: singular value {rank} is "
            f"{float(singular[rank - 1]):.1e}, the first {float(singular[0]):.1e}. Lower the dimension, or sample "
            "matrices that differ more."
        )
    top = vectors[:, :rank]
    if wide:
        # Small singular values lose digits; one QR makes the basis orthonormal to rounding.
        top, _ = xp.linalg.qr(M.T @ (top / singular[None, :rank]))
    return top, singular
