"""Decomposition into rank-one terms by eigenvectors: Jennrich's algorithm for tensors, joint pencils for matrices.

Factors are columns. Everything here is NumPy: general eigenvectors are no part of the array API.
"""

import math
import warnings
from numbers import Integral
from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import EXACT_RANK_TOL, MATRIX_ENTRIES

from . import lapack
from .singular_values import svd

_N_REFINED = 3  # draws that get Newton steps (budget)
_SHORT_STEP = 1e-9  # length of a Newton step after which the next one, its square, is rounding
_PARALLEL_SINE = 1e-6  # below which two factors count as parallel: their separation would lose 6 digits


class JennrichFactors(NamedTuple):
    """``T = sum_i u_i (x) v_i (x) w_i``: the result of `jennrich`.

    Attributes
    ----------
    U : ndarray of shape (n_1, r)
        Unit columns.
    V : ndarray of shape (n_2, r)
        Unit columns.
    W : ndarray of shape (n_3, r)
        Their norms are those of the terms.
    residual : float
        ``||T - sum|| / ||T||``.
    """

    U: np.ndarray
    V: np.ndarray
    W: np.ndarray
    residual: float


class JointPencil(NamedTuple):
    """``M_j = sum_i c_ij w_i w_i^T``: the result of `joint_pencil`.

    Attributes
    ----------
    vectors : ndarray of shape (n, r)
        Unit columns w_i.
    coefficients : ndarray of shape (J, r)
    residual : float
        Root of ``sum_j ||M_j - sum_i c_ij w_i w_i^T||^2 / sum_j ||M_j||^2``.
    """

    vectors: np.ndarray
    coefficients: np.ndarray
    residual: float


def _checked(name, array, ndim, wanted):
    array = np.asarray(array, dtype=np.float64)
    if array.ndim != ndim or 0 in array.shape:
        raise ValueError(f"{name} must have shape {wanted}, got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {np.count_nonzero(~np.isfinite(array))} entries that are not.")
    return array


def _check_counts(rank, n_draws, dimension):
    for name, value in (("rank", rank), ("n_draws", n_draws)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
    if rank > dimension:
        raise ValueError(
            f"rank {rank} is larger than the dimension {dimension}: eigenvectors give at most as many linearly "
            "independent factors. Lower the rank, or flatten a tensor of higher order so that its factors are powers."
        )


def _leading(flat, rank, what):
    """Orthonormal columns (n, rank) spanning the columns of a matrix."""
    Q, values, _ = svd(flat, full_matrices=False)
    if not (len(values) >= rank and values[rank - 1] > EXACT_RANK_TOL * values[0]):
        seen = int(np.count_nonzero(values > EXACT_RANK_TOL * values[0]))
        raise ValueError(
            f"{what} of rank {seen}, less than the {rank} wanted: factors are linearly dependent, or there are "
            "fewer terms. Lower the rank."
        )
    return Q[:, :rank]


def _eigenvectors(C):
    """Real unit eigenvectors of a batch of matrices, as columns; of a complex pair the real and the imaginary part."""
    values, vectors = lapack.eig(C)
    vectors = np.where((values.imag < 0)[..., None, :], vectors.imag, vectors.real)
    # An eigenvector that is real to rounding has no imaginary part to offer.
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-2, keepdims=True), np.finfo(np.float64).tiny)


def _mixtures(n_draws, n, rng):
    """Random unit vectors (n_draws, n): as many contractions of a family of n."""
    draws = rng.standard_normal((n_draws, n))
    return draws / np.linalg.norm(draws, axis=1, keepdims=True)


def _warn_if_parallel(W, what):
    """Warn where two columns of W (J, r) are parallel, up to sign."""
    W = W / np.maximum(np.linalg.norm(W, axis=0), np.finfo(np.float64).tiny)
    cosines = np.abs(np.triu(W.T @ W, 1))
    if cosines.size and cosines.max() > math.sqrt(1.0 - _PARALLEL_SINE**2):
        i, j = np.unravel_index(np.argmax(cosines), cosines.shape)
        warnings.warn(
            f"{what} {i} and {j} are parallel: the other factors of these terms are only determined up to a mixing of "
            "the two. Give other contractions or a tensor in which they differ.",
            RuntimeWarning,
            stacklevel=3,
        )


def _explained(S, X):
    """Least squares of symmetric S (J, n, n) on ``x x^T`` of the columns of X (draws, n, r).

    Coefficients (draws, J, r) and squared residuals (draws,).
    """
    gram = (X.swapaxes(1, 2) @ X) ** 2
    inverse = lapack.pinv(gram, rcond=1e-12, hermitian=True)
    coefficients, squares = np.empty((len(X), len(S), X.shape[2])), np.empty(len(X))
    step = max(1, MATRIX_ENTRIES // S.size)
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        Y = X[part, None]
        coefficients[part] = np.sum(Y * (S @ Y), axis=2) @ inverse[part]
        fits = (Y * coefficients[part, :, None, :]) @ Y.swapaxes(2, 3)
        squares[part] = np.sum((S - fits) ** 2, axis=(1, 2, 3))
    return coefficients, squares


def _diagonalize(S, X):
    """A Newton step (draws, n, r) towards ``X^{-1} S_j X^{-T}`` diagonal for all j, and its length (draws,).

    With diagonals d_j and ``X <- X (I + Z)``, off-diagonal entries (k, l) are ``d_jl Z_kl + d_jk Z_lk`` to first order:
    two unknowns per pair, solved by least squares over j.
    """
    inverse = lapack.pinv(X)[:, None]
    D = inverse @ S @ inverse.swapaxes(2, 3)
    d = np.einsum("njkk->njk", D)
    gram = d.swapaxes(1, 2) @ d
    squares = np.einsum("nkk->nk", gram)
    outer = squares[:, :, None] * squares[:, None, :]
    by_column, by_row = np.einsum("njl,njkl->nkl", d, D), np.einsum("njk,njkl->nkl", d, D)
    Z = squares[:, :, None] * by_column - gram * by_row
    Z /= np.maximum(outer - gram**2, 1e-12 * outer) + np.finfo(np.float64).tiny
    np.einsum("nkk->nk", Z)[...] = 0.0
    length = np.linalg.norm(Z, axis=(1, 2))
    X = X + X @ (Z / np.maximum(length, 1.0)[:, None, None])
    return X / np.linalg.norm(X, axis=1, keepdims=True), length


def _refine(S, X, coefficients, squares, max_iter):
    """The best of a few draws and of what Newton steps make of them: factors (n, r) and coefficients (J, r)."""
    # Residuals below this are rounding, and the later step is the better one.
    rounding = 1e-24 * float(np.sum(S**2))
    first = np.argsort(squares, kind="stable")[:_N_REFINED]
    best = first[0]
    lowest, chosen, X = max(float(squares[best]), rounding), (X[best], coefficients[best]), X[first]
    for _ in range(max_iter):
        check_deadline()
        X, length = _diagonalize(S, X)
        coefficients, squares = _explained(S, X)
        best = int(np.argmin(squares))
        if max(float(squares[best]), rounding) <= lowest:
            lowest, chosen = max(float(squares[best]), rounding), (X[best], coefficients[best])
        if length[best] < _SHORT_STEP:
            break
    return chosen


def joint_pencil(matrices, rank, *, base=None, n_draws=20, max_iter=10, rng=None):
    """Common factors of symmetric matrices ``M_j = sum_i c_ij w_i w_i^T``, by random pencils and Newton steps.

    A draw takes the eigenvectors of ``(sum_j alpha_j M_j) B^+`` for random alpha, with B the base or a second random
    mixture. The draws that explain all matrices best, in least squares, are improved by joint diagonalization: Newton
    steps that make all ``X^{-1} M_j X^{-T}`` diagonal. The best result is kept.

    Parameters
    ----------
    matrices : array-like of shape (J, n, n)
        Their scales are their weights. Symmetric; of others the symmetric part counts.
    rank : int
        r, the number of factors, at most n.
    base : array-like of shape (n, n), default=None
        A matrix of the same form with all c_i nonzero; its accuracy limits that of all draws. None draws it as a
        mixture.
    n_draws : int, default=20
    max_iter : int, default=10
        Newton steps on the best 3 draws; 0 for the pencil alone.
    rng : numpy.random.RandomState or Generator, default=None

    Returns
    -------
    JointPencil
        Vectors up to order and signs; with a base, it is part of the residual but not of the coefficients.

    Raises
    ------
    ValueError
        If shapes are wrong, an entry is not finite, r exceeds n, or the matrices (the base) have a smaller range.

    Warns
    -----
    RuntimeWarning
        If two factors have proportional coefficients in all matrices: they are not identifiable.

    Notes
    -----
    All draws are one batch, in the r-dimensional range of the base or of all matrices: ``O(n^2 J n + n_draws J r^3)``.
    A pencil uses two mixtures, the Newton steps all matrices: they reduce an error of 0.3 of a pencil, due to noise, to
    0.03 (10 random factors in 10 dimensions). A mixture of several families, such as contractions of tensors of two
    orders, has different c_i even if some vanish in each family.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import joint_pencil
    >>> W, c = (
    ...     np.array([[1.0, 0.6], [0.0, 0.8]]),
    ...     np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),
    ... )
    >>> found = joint_pencil(np.einsum("ik,jk,lk->jil", W, c, W), 2)
    >>> print(np.abs(W.T @ found.vectors).max(axis=1).round(12))
    [1. 1.]
    """
    M = _checked("matrices", matrices, 3, "(J, n, n)")
    if M.shape[1] != M.shape[2]:
        raise ValueError(f"matrices must have shape (J, n, n), got {M.shape}.")
    _check_counts(rank, n_draws, M.shape[1])
    if base is None:
        family, flat, what = M, np.concatenate(M, axis=1), "the matrices have a range"
    else:
        base = _checked("base", base, 2, "(n, n)")
        if base.shape != M.shape[1:]:
            raise ValueError(f"base must have shape {M.shape[1:]} like the matrices, got {base.shape}.")
        family, flat, what = np.concatenate([M, base[None]]), base, "the base is"
    Q = _leading(flat, rank, what)
    family = (family + family.swapaxes(1, 2)) / 2
    rng = np.random.RandomState(0) if rng is None else rng
    S = Q.T @ family @ Q
    A = np.tensordot(_mixtures(n_draws, len(M), rng), S[: len(M)], 1)
    B = S[-1] if base is not None else np.tensordot(_mixtures(n_draws, len(M), rng), S, 1)
    X = _eigenvectors(A @ lapack.pinv(B))
    X, coefficients = _refine(S, X, *_explained(S, X), max_iter)
    _warn_if_parallel(coefficients, "the coefficients of factors")
    vectors = Q @ X
    residual = np.linalg.norm(family - (vectors * coefficients[:, None]) @ vectors.T) / np.linalg.norm(family)
    return JointPencil(vectors, coefficients[: len(M)], float(residual))


def _rank_one(slices):
    """Best unit v (..., a) and w (..., b) with ``v w^T`` nearest to the matrices (..., a, b)."""
    left, values, right = svd(slices, full_matrices=False)
    return left[..., 0], values[..., :1] * right[..., 0, :]


def _pencil_draws(core, X):
    """Other factors that go with the first ones X (draws, r, r) of a core (r, r, n_3), and squared residuals."""
    slices = lapack.pinv(X) @ core.reshape(len(core), -1)
    V, W = _rank_one(slices.reshape(*X.shape[:2], *core.shape[1:]))
    fits = np.einsum("dri,dia,dib->drab", X, V, W, optimize=True)
    return V, W, np.sum((core - fits) ** 2, axis=(1, 2, 3))


def jennrich(T, rank, *, symmetric=False, n_draws=5, rng=None):
    """Rank-one terms of an order-3 tensor ``T = sum_i u_i (x) v_i (x) w_i`` by Jennrich's algorithm.

    T is contracted in its third mode with two random vectors; the eigenvectors of one matrix times the other's inverse
    are the u_i. Given these, ``v_i (x) w_i`` are rank-one approximations of rows of ``U^+ T``.

    Parameters
    ----------
    T : array-like of shape (n_1, n_2, n_3)
        Unique terms need linearly independent u_i, linearly independent v_i, and no two parallel w_i.
    rank : int
        r, the number of terms, at most n_1 and n_2.
    symmetric : bool, default=False
        Whether ``u_i = v_i``: then this is a `joint_pencil` of the slices ``T[:, :, k]``, and w_i by least squares.
    n_draws : int, default=5
        Pairs of random vectors; the terms of the smallest residual are kept.
    rng : numpy.random.RandomState or Generator, default=None

    Returns
    -------
    JennrichFactors
        In no particular order; signs of the columns of U and V are arbitrary, their products with W are not.

    Raises
    ------
    ValueError
        If the shape is wrong, an entry is not finite, or r exceeds n_1, n_2 or the rank of T in its first two modes.

    Warns
    -----
    RuntimeWarning
        If two w_i are parallel: the terms still sum to T, but others do as well.

    Notes
    -----
    ``O(n_1 n_2 n_3 min(n_1, n_2 n_3) + n_draws (r^3 + r^2 n_3 min(r, n_3)))``. The error is that of T times condition
    numbers of U and V over the smallest gap between eigenvalues (Theorem A.5 of [1]_), so a few draws pay.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations. Theorem A.5.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import jennrich
    >>> U, V, W = np.random.RandomState(0).standard_normal((3, 4, 3))
    >>> found = jennrich(np.einsum("ir,jr,kr->ijk", U, V, W), 3)
    >>> print(round(found.residual, 12))
    0.0
    """
    T = _checked("T", T, 3, "(n_1, n_2, n_3)")
    _check_counts(rank, n_draws, min(T.shape[:2]))
    if symmetric:
        if T.shape[0] != T.shape[1]:
            raise ValueError(
                f"a tensor that is symmetric in its first two modes has equal dimensions, got shape {T.shape}."
            )
        found = joint_pencil(np.moveaxis(T, 2, 0), rank, n_draws=n_draws, rng=rng)
        return JennrichFactors(found.vectors, found.vectors.copy(), found.coefficients, found.residual)
    n1, n2, n3 = T.shape
    left = _leading(T.reshape(n1, -1), rank, "the first mode is")
    right = _leading(T.swapaxes(0, 1).reshape(n2, -1), rank, "the second mode is")
    core = np.einsum("ia,ijk,jb->abk", left, T, right, optimize=True)
    rng = np.random.RandomState(0) if rng is None else rng
    A, B = (np.moveaxis(core @ _mixtures(n_draws, n3, rng).T, 2, 0) for _ in range(2))
    X = _eigenvectors(A @ lapack.pinv(B))
    V, W, squares = _pencil_draws(core, X)
    best = int(np.argmin(squares))
    _warn_if_parallel(W[best].T, "third factors")
    factors = left @ X[best], right @ V[best].T, W[best].T
    residual = np.linalg.norm(T - np.einsum("ir,jr,kr->ijk", *factors, optimize=True)) / np.linalg.norm(T)
    return JennrichFactors(*factors, float(residual))
