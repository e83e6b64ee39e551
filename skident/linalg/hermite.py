"""Hermite polynomials of the standard normal distribution: values and packed tensors.

The k-th Hermite tensor ``He_k(x)`` is ``(-1)^k D^k gamma(x) / gamma(x)`` with the Gaussian ``gamma``; its entry with
a_i indices i is ``prod_i He_{a_i}(x_i)``. The coefficient tensors of a function are ``T_k = E[f(x) He_k(x)]``.
"""

from array_api_compat import array_namespace, device

from .packing import check_order, floats, like, packing, packing_weights


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
    order, X = check_order(order), floats(X)
    xp, D = array_namespace(X), X.shape[-1]
    entries = xp.moveaxis(X, -1, 0)
    values = [xp.ones((1, *X.shape[:-1]), dtype=X.dtype, device=device(X)), entries]
    for k in range(2, order + 1):
        first, rest, count, _ = packing(D, k)
        value = xp.take(entries, like(first, X), axis=0) * xp.take(values[k - 1], like(rest, X), axis=0)
        # He_{a + 1} = x He_a - a He_{a - 1} in the first variable: taking it out of the others twice is He_{a - 1}.
        again = count.nonzero()[0]
        lower = packing(D, k - 1)[1][rest[again]]
        factor = xp.reshape(like(count[again].astype("float64"), X), (-1,) + (1,) * (X.ndim - 1))
        value[like(again, X)] -= factor * xp.take(values[k - 2], like(lower, X), axis=0)
        values.append(value)
    return xp.moveaxis(values[order], 0, -1) * like(packing_weights(D, order), X)
