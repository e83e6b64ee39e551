"""Checks of the arrays of a point: hidden and output weights, and the data of its loss."""

from __future__ import annotations

import numpy as np

__all__ = ["check_point"]


def check_point(W, v, X, y):
    """Hidden weights, output weights, inputs and targets as arrays that fit together.

    Parameters
    ----------
    W : array-like of shape (k, d)
        A torch parameter is taken as it is.
    v : array-like of shape (k,)
    X : array-like of shape (n, d)
    y : array-like of shape (n,)

    Returns
    -------
    list of four ndarrays
        The same, of float64.

    Raises
    ------
    ValueError
        If they are complex, not finite or empty, or their shapes do not fit together.
    """
    arrays = []
    for name, array, ndim in (("W", W, 2), ("v", v, 1), ("X", X, 2), ("y", y, 1)):
        array = array.detach().cpu() if hasattr(array, "detach") else array
        if np.iscomplexobj(array):
            raise ValueError(f"{name} is complex; a certificate is about real networks and data.")
        array = np.asarray(array, dtype=np.float64)
        if array.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite; a certificate needs finite numbers.")
        arrays.append(array)
    (k, d), n = arrays[0].shape, len(arrays[2])
    if arrays[1].shape != (k,) or arrays[2].shape[1] != d or len(arrays[3]) != n:
        hint = " W has one unit a row; it looks transposed." if arrays[1].shape == (d,) else ""
        raise ValueError(
            f"shapes must be W (k, d), v (k,), X (n, d), y (n,); got {', '.join(str(a.shape) for a in arrays)}.{hint}"
        )
    if 0 in (k, d, n):
        raise ValueError(f"W, X and y must not be empty, got k = {k} units, d = {d} inputs, n = {n} rows.")
    return arrays
