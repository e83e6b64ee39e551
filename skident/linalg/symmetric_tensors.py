"""Symmetric tensors of any order as vectors.

Layout: a symmetric tensor T of order k over ``R^D`` is the packed vector of its ``C(D + k - 1, k)`` free entries
``T[i_1, ..., i_k]``, ``i_1 <= ... <= i_k`` in lexicographic order, each times the root of the number of full entries
that it stands for. Dot products of packed vectors are then inner products of tensors; for k = 2 it is `svec`. An
order-0 tensor has one entry.
"""

import numpy as np
from array_api_compat import array_namespace, device

from .packing import check_order, floats, like, merger, n_symmetric_entries, packing, packing_weights


def _check_packed(packed, n_features, order):
    order, wanted = check_order(order), n_symmetric_entries(n_features, order)
    if packed.ndim < 1 or packed.shape[-1] != wanted:
        raise ValueError(
            f"a packed symmetric tensor of order {order} over R^{n_features} has {wanted} entries in its last axis, "
            f"got shape {tuple(packed.shape)}."
        )
    return floats(packed)


def _take(x, index):
    """``x[..., index]`` for an index of any shape."""
    xp = array_namespace(x)
    flat = xp.take(x, like(index.reshape(-1), x), axis=-1)
    return xp.reshape(flat, (*x.shape[:-1], *index.shape))


def symmetric_power(X, order):
    """Packed symmetric powers ``x^{(x) k}`` of the rows of X.

    Parameters
    ----------
    X : array of shape (..., D)
    order : int
        k >= 0.

    Returns
    -------
    P : array of shape (..., C(D + k - 1, k))
        ``P(u) . P(v) = (u . v)^k``; for k = 2 it is `svec_outer`.

    Raises
    ------
    ValueError
        If `order` is not an integer >= 0.

    Notes
    -----
    One product an entry and order, ``O(n C(D + k - 1, k))``. The entries lie next to each other in memory along the
    rows of X, not along an entry's row: the result may be a transposed view.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import symmetric_power
    >>> u, v = symmetric_power(np.array([[1.0, 2.0], [3.0, 1.0]]), 3)
    >>> print(round(float(u @ v), 9))
    125.0
    """
    order, X = check_order(order), floats(X)
    xp, D = array_namespace(X), X.shape[-1]
    entries = xp.moveaxis(X, -1, 0)
    power = xp.ones((1, *X.shape[:-1]), dtype=X.dtype, device=device(X)) if order == 0 else entries
    for k in range(2, order + 1):
        first, rest, _, _ = packing(D, k)
        power = xp.take(entries, like(first, X), axis=0) * xp.take(power, like(rest, X), axis=0)
    return xp.moveaxis(power, 0, -1) * like(packing_weights(D, order), X)


def flatten_symmetric(packed, n_features, orders):
    """A packed symmetric tensor as a matrix or an order-3 tensor in packed coordinates of its parts.

    The flattening of the paper groups the k modes into parts of k_1, k_2 (and k_3) modes; here each part's symmetric
    coordinates are packed, so that order 5 becomes (q, q, D) with ``q = D (D + 1) / 2`` instead of (D^2, D^2, D). Rank
    and singular values are those of the full flattening.

    Parameters
    ----------
    packed : array of shape (..., C(D + k - 1, k))
    n_features : int
        D.
    orders : tuple of 2 or 3 ints
        ``(k_1, k_2)`` or ``(k_1, k_2, k_3)``, each >= 0, with sum k.

    Returns
    -------
    array of shape (..., n_{k_1}, n_{k_2}[, n_{k_3}])
        Of ``w^{(x) k}`` it is the outer product of w's symmetric powers of orders ``k_1``, ``k_2`` (and ``k_3``).

    Raises
    ------
    ValueError
        If there are not two or three orders, or their sum does not fit the number of entries.

    References
    ----------
    P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
    General ReLU Activations. Appendix A.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import flatten_symmetric, symmetric_power
    >>> F = flatten_symmetric(symmetric_power(np.array([1.0, 2.0]), 5), 2, (2, 2, 1))
    >>> print(F.shape, round(float(np.sum(F**2)), 9))
    (3, 3, 2) 3125.0
    """
    orders = tuple(check_order(k, name="every part's order") for k in orders)
    if len(orders) not in (2, 3):
        raise ValueError(f"orders must be two or three numbers of modes, got {orders}.")
    packed = _check_packed(packed, n_features, sum(orders))
    xp = array_namespace(packed)
    *left, right = orders
    W = [like(packing_weights(n_features, k), packed) for k in (sum(orders), *orders)]
    flat = _take(packed / W[0], merger(n_features, sum(left), right)) * W[-1]
    if len(left) == 1:
        return flat * W[1][:, None]
    flat = xp.moveaxis(_take(xp.moveaxis(flat, -1, 0), merger(n_features, *left)), 0, -1)
    return flat * (W[1][:, None, None] * W[2][None, :, None])


def contract_symmetric(packed, n_features, order, by, by_order):
    """Contractions of a packed symmetric tensor with packed ones of lower order.

    Parameters
    ----------
    packed : array of shape (C(D + k - 1, k),)
    n_features, order : int
        D and k.
    by : array of shape (..., C(D + j - 1, j))
        For ``j = 1`` vectors; symmetric matrices for ``j = 2`` through `svec`.
    by_order : int
        ``j <= k``.

    Returns
    -------
    array of shape (..., C(D + k - j - 1, k - j))
        Packed tensors of order ``k - j``.

    Raises
    ------
    ValueError
        If an array does not have the number of entries of its order, or ``j > k``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import contract_symmetric, smat, symmetric_power
    >>> T = symmetric_power(np.array([1.0, 2.0]), 3)
    >>> print(smat(contract_symmetric(T, 2, 3, np.array([1.0, 1.0]), 1), 2).round(9)[1, 1])
    12.0
    """
    by = _check_packed(by, n_features, by_order)
    if by_order > order:
        raise ValueError(f"a tensor of order {order} cannot be contracted with one of order {by_order}.")
    flat = flatten_symmetric(packed, n_features, (order - by_order, by_order))
    return by @ flat.T


def pack_entries(T, n_features, orders):
    """Packed symmetric tensor from its entries (n_k1,) or (n_k1, n_k2), without weights, at pairs of multi-indices."""
    place = merger(n_features, *orders)
    order = sum(orders)
    packed = np.empty(n_symmetric_entries(n_features, order))
    packed[place.reshape(-1)] = T.reshape(-1)
    return packed * packing_weights(n_features, order)
