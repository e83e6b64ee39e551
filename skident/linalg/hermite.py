"""Hermite polynomials of the standard normal distribution: values, packed tensors, streamed contractions.

The k-th Hermite tensor ``He_k(x)`` is ``(-1)^k D^k gamma(x) / gamma(x)`` with the Gaussian ``gamma``; its entry with
a_i indices i is ``prod_i He_{a_i}(x_i)``. The coefficient tensors of a function are ``T_k = E[f(x) He_k(x)]``.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from .packing import check_order, floats, like, packing, packing_weights

__all__ = ["hermite_contraction", "hermite_features", "hermite_polynomial", "hermite_polynomials"]


def hermite_polynomials(degree, x):
    """Probabilists' Hermite polynomials ``He_0(x), ..., He_degree(x)``, stacked in front: (degree + 1, ...).

    Parameters
    ----------
    degree : int
    x : array of any shape

    Returns
    -------
    array of shape (degree + 1, ...)

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import hermite_polynomials
    >>> print(hermite_polynomials(3, np.array([2.0]))[:, 0])
    [1. 2. 3. 2.]
    """
    degree, x = check_order(degree, name="degree"), floats(x)
    xp = array_namespace(x)
    values = [xp.ones_like(x), x]
    for k in range(1, degree):
        values.append(x * values[k] - k * values[k - 1])
    return xp.stack(values[: degree + 1], axis=0)


def hermite_polynomial(k, x):
    """Probabilists' Hermite polynomial ``He_k`` at an array of any shape.

    By the recurrence ``He_{k+1}(x) = x He_k(x) - k He_{k-1}(x)``; orthogonal under the standard normal distribution,
    with ``E[He_k^2] = k!``.

    Parameters
    ----------
    k : int
        Degree, >= 0.
    x : array

    Returns
    -------
    array of x's shape

    Raises
    ------
    ValueError
        If k is not an integer >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import hermite_polynomial
    >>> print(float(hermite_polynomial(3, np.array(2.0))))
    2.0
    """
    return hermite_polynomials(k, x)[-1, ...]


def hermite_features_to(X, degree):
    """`hermite_features` (..., n_k) of all orders k = 0, ..., degree: the recurrence needs the lower ones."""
    degree, X = check_order(degree, name="degree"), floats(X)
    xp, D = array_namespace(X), X.shape[-1]
    entries = xp.moveaxis(X, -1, 0)
    values = [xp.ones((1, *X.shape[:-1]), dtype=X.dtype, device=device(X)), entries]
    for k in range(2, degree + 1):
        first, rest, count, _ = packing(D, k)
        value = xp.take(entries, like(first, X), axis=0) * xp.take(values[k - 1], like(rest, X), axis=0)
        # He_{a + 1} = x He_a - a He_{a - 1} in the first variable: taking it out of the others twice is He_{a - 1}.
        again = count.nonzero()[0]
        lower = packing(D, k - 1)[1][rest[again]]
        factor = xp.reshape(like(count[again].astype("float64"), X), (-1,) + (1,) * (X.ndim - 1))
        value[like(again, X)] -= factor * xp.take(values[k - 2], like(lower, X), axis=0)
        values.append(value)
    return [xp.moveaxis(v, 0, -1) * like(packing_weights(D, k), X) for k, v in enumerate(values[: degree + 1])]


def hermite_features(X, order):
    """Packed Hermite tensors ``He_k(x)`` of the rows of X.

    The packing is that of `symmetric_power`, so the mean of ``y_n hermite_features(x_n, k)`` is the packed coefficient
    tensor T_k, and for unit w ``hermite_features(x, k) . symmetric_power(w, k) = He_k(w . x)``.

    Parameters
    ----------
    X : array of shape (..., D)
    order : int
        k >= 0.

    Returns
    -------
    array of shape (..., C(D + k - 1, k))
        Entries are uncorrelated under N(0, I) with variance ``k!``.

    Raises
    ------
    ValueError
        If `order` is not an integer >= 0.

    Notes
    -----
    ``O(n C(D + k - 1, k))``: call it on chunks of rows to bound the memory. The result may be a transposed view.
    Source: Definition A.2 of Awasthi, Tang, Vijayaraghavan (2021).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import hermite_features
    >>> print(hermite_features(np.array([[2.0, 0.5]]), 2)[0].round(4))
    [ 3.      1.4142 -0.75  ]
    """
    return hermite_features_to(X, check_order(order))[-1]


class _Contraction:
    """Running sums of one chunked contraction ``sum_n y_n He_k(x_n)(v_1, ..., v_{k-2}, ., .)``, for J sets of vectors.

    He_k is a sum over matchings of its k modes: matched modes give minus the inner product, the others x. With H(S) the
    scalar contraction of the vectors in S, the two free modes are both x, or one or both matched with vectors, or with
    each other.
    """

    def __init__(self, vectors):
        self.vectors, self.n_modes = vectors, vectors.shape[1]
        self.gram = vectors @ array_namespace(vectors).matrix_transpose(vectors)
        self.total = 0.0

    def scalars(self, X, y):
        """``y_n H_S(x_n)`` (n, J) of every set S of vectors, the sets coded as bits."""
        xp = array_namespace(X)
        J, modes, D = self.vectors.shape
        s = xp.reshape(X @ xp.reshape(self.vectors, (J * modes, D)).T, (X.shape[0], J, modes))
        H = [xp.broadcast_to(y[:, None], (X.shape[0], J))]
        for S in range(1, 2**modes):
            top = S.bit_length() - 1
            rest = S ^ (1 << top)
            value = s[:, :, top] * H[rest]
            for i in range(top):
                if rest >> i & 1:
                    value = value - self.gram[:, top, i] * H[rest ^ (1 << i)]
            H.append(value)
        return H

    def add(self, X, y):
        xp, v, modes = array_namespace(X), self.vectors, self.n_modes
        H, everything = self.scalars(X, y), 2**modes - 1
        eye = xp.eye(X.shape[1], dtype=X.dtype, device=device(X))
        part = weighted_squares(X, H[everything]) - eye * xp.sum(H[everything], axis=0)[:, None, None]
        for j in range(modes):
            without = everything ^ (1 << j)
            part = part - symmetrized_outer(H[without].T @ X, v[:, j, :])
            for i in range(j):
                h = xp.sum(H[without ^ (1 << i)], axis=0)
                part = part + symmetrized_outer(h[:, None] * v[:, i, :], v[:, j, :])
        self.total = self.total + part


class _MatrixContraction:
    """As `_Contraction` for k = 4, with J symmetric matrices in place of pairs of vectors."""

    def __init__(self, matrices):
        xp = array_namespace(matrices)
        self.matrices = (matrices + xp.matrix_transpose(matrices)) / 2
        self.trace = xp.linalg.trace(self.matrices)
        self.total = 0.0

    def add(self, X, y):
        xp, V = array_namespace(X), self.matrices
        eye = xp.eye(X.shape[1], dtype=X.dtype, device=device(X))
        second, count = (X * y[:, None]).T @ X, xp.sum(y)
        quadratic = xp.stack([xp.sum((X @ M) * X, axis=1) for M in V], axis=1) * y[:, None]
        mixed = V @ second
        part = weighted_squares(X, quadratic) - self.trace[:, None, None] * second
        part = part - 2 * (mixed + xp.matrix_transpose(mixed)) - eye * xp.sum(quadratic, axis=0)[:, None, None]
        self.total = self.total + part + count * (self.trace[:, None, None] * eye + 2 * V)


def weighted_squares(X, weights):
    """``X^T diag(weights[:, j]) X`` for every column j of weights (n, J): (J, D, D)."""
    xp = array_namespace(X)
    return xp.stack([(X * weights[:, j : j + 1]).T @ X for j in range(weights.shape[1])], axis=0)


def symmetrized_outer(u, v):
    """``u_j v_j^T + v_j u_j^T`` of rows (J, D): (J, D, D)."""
    outer = u[:, :, None] * v[:, None, :]
    return outer + array_namespace(u).matrix_transpose(outer)


def _check_contraction(X, y, order, vectors, matrices):
    """The accumulator, and whether there is one set of vectors only."""
    order, D = check_order(order, minimum=2), X.shape[-1]
    if X.ndim != 2 or tuple(y.shape) != (X.shape[0],):
        raise ValueError(f"X must be (n, D) and y (n,), got shapes {tuple(X.shape)} and {tuple(y.shape)}.")
    if (vectors is None) == (matrices is None):
        raise ValueError("give either vectors or matrices to contract with.")
    wanted = (order - 2, D) if matrices is None else (D, D)
    given = vectors if matrices is None else matrices
    if matrices is not None and order != 4:
        raise ValueError(f"only the tensor of order 4 is contracted with matrices, got order {order}; use vectors.")
    if given.ndim not in (2, 3) or tuple(given.shape[-2:]) != wanted:
        raise ValueError(
            f"to leave a matrix, order {order} over R^{D} is contracted with arrays of shape {wanted} or (J, "
            f"{wanted[0]}, {wanted[1]}), got {tuple(given.shape)}."
        )
    batch = floats(given if given.ndim == 3 else given[None])
    return (_Contraction(batch) if matrices is None else _MatrixContraction(batch)), given.ndim == 2


def hermite_contraction(X, y, order, vectors=None, *, matrices=None, sample_weight=None, batch_size=8192):
    """The coefficient tensor ``T_k = mean_n y_n He_k(x_n)`` contracted down to matrices, without forming it.

    ``M = T_k(v_1, ..., v_{k-2}, ., .)``, or ``T_4(V, ., .) = sum_ij V_ij T_4[i, j, :, :]``.

    Parameters
    ----------
    X : array of shape (n, D)
        May be a memory map: only `batch_size` rows are read at a time.
    y : array of shape (n,)
    order : int
        k >= 2; the work doubles with every vector.
    vectors : array of shape (k - 2, D) or (J, k - 2, D)
        One or J sets of vectors.
    matrices : array of shape (D, D) or (J, D, D), default=None
        For k = 4 instead of `vectors`; only their symmetric parts matter.
    sample_weight : array of shape (n,), default=None
        The mean is weighted with these.
    batch_size : int, default=8192

    Returns
    -------
    array of shape (D, D) or (J, D, D)
        Symmetric.

    Raises
    ------
    ValueError
        If shapes do not fit, not exactly one of `vectors` and `matrices` is given, or the weights' sum is not positive.

    Notes
    -----
    ``O(n J (D^2 + 2^k))`` operations, ``O(batch_size (D + J 2^(k-2)) + J D^2)`` memory. Any number k - 2 of vectors by
    the sum over matchings, in which ``k = 3`` reads ``x x^T (v . x) - v x^T - x v^T - (v . x) I``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import hermite_contraction
    >>> X = np.array([[2.0, 0.0], [1.0, 1.0]])
    >>> M = hermite_contraction(X, np.array([1.0, 3.0]), 3, np.array([[1.0, 0.0]]))
    >>> print(M[0, 0])
    -2.0
    """
    running, single = _check_contraction(X, y, order, vectors, matrices)
    if sample_weight is not None and tuple(sample_weight.shape) != tuple(y.shape):
        raise ValueError(f"sample_weight must be {tuple(y.shape)}, got {tuple(sample_weight.shape)}.")
    mass = 0.0
    for start in range(0, X.shape[0], batch_size):
        rows, values = floats(X[start : start + batch_size, :]), y[start : start + batch_size]
        weights = None if sample_weight is None else sample_weight[start : start + batch_size]
        mass += rows.shape[0] if weights is None else float(array_namespace(weights).sum(weights))
        running.add(rows, values if weights is None else values * weights)
    if not mass > 0:
        raise ValueError(f"the sample weights must have a positive sum, got {mass}.")
    M = running.total / mass
    return M[0, ...] if single else M
