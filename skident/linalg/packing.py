"""How the entries of symmetric tensors are packed: positions, weights, and how orders are made of each other."""

import functools
import math
from numbers import Integral

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace


def n_symmetric_entries(n_features, order):
    """``C(D + k - 1, k)``, the dimension of the symmetric tensors of order k over R^D.

    Parameters
    ----------
    n_features, order : int
        D and k.

    Returns
    -------
    int

    Examples
    --------
    >>> from skident.linalg import n_symmetric_entries
    >>> print(n_symmetric_entries(3, 2))
    6
    """
    return math.comb(n_features + order - 1, order)


def check_order(order, minimum=0, name="order"):
    """The order of a tensor as an int; ValueError if it is no integer, or below the minimum."""
    if isinstance(order, bool) or not isinstance(order, Integral) or order < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {order!r}.")
    return int(order)


def _starts(n_features, order):
    """Number of multi-indices of an order whose first index is below i, for i = 0, ..., D."""
    tail = [math.comb(n_features - i + order - 1, order) for i in range(n_features)] + [0]
    return tail[0] - np.array(tail, dtype=np.int64)


def _read_only(*arrays):
    for array in arrays:
        array.flags.writeable = False
    return arrays


@functools.lru_cache(maxsize=32)
def packing(n_features, order):
    """How packed entries of order k >= 1 are made of those of order k - 1: four read-only, cached arrays (n_k,).

    The first index, the position of the others in order k - 1, how often the first is among them, and the weights.
    """
    shorter = n_symmetric_entries(n_features, order - 1)
    starts = _starts(n_features, order - 1) if order > 1 else np.zeros(n_features, dtype=np.int64)
    sizes = shorter - starts[:n_features]
    first = np.repeat(np.arange(n_features), sizes)
    rest = np.concatenate([np.arange(start, shorter) for start in starts[:n_features]])
    if order == 1:
        return _read_only(first, rest, np.zeros(n_features, dtype=np.int64), np.ones(n_features))
    inner_first, _, inner_count, inner_weights = packing(n_features, order - 1)
    count = np.where(inner_first[rest] == first, inner_count[rest] + 1, 0)
    weights = inner_weights[rest] * np.sqrt(order / (count + 1.0))
    return _read_only(first, rest, count, weights)


def packing_weights(n_features, order):
    """Roots of the numbers of full entries that the packed entries of order k >= 0 stand for, (n_k,)."""
    return packing(n_features, order)[3] if order else np.ones(1)


@functools.lru_cache(maxsize=32)
def insertion(n_features, order):
    """Position in order k + 1 of every multi-index of order k with index i inserted, (n_k, D); read-only, cached."""
    if order == 0:
        return _read_only(np.arange(n_features)[None])[0]
    first, rest, _, _ = packing(n_features, order)
    longer, same = _starts(n_features, order + 1), _starts(n_features, order)
    i = np.arange(n_features)[None]
    in_front = longer[i] + np.arange(len(first))[:, None] - same[i]
    behind = (longer[first] - same[first])[:, None] + insertion(n_features, order - 1)[rest]
    return _read_only(np.where(i <= first[:, None], in_front, behind))[0]


@functools.lru_cache(maxsize=16)
def merger(n_features, left, right):
    """Position in order k1 + k2 of the union of multi-indices of orders k1 and k2, (n_k1, n_k2); read-only, cached."""
    if right == 0:
        return _read_only(np.arange(n_symmetric_entries(n_features, left))[:, None])[0]
    first, rest, _, _ = packing(n_features, right)
    return _read_only(insertion(n_features, left + right - 1)[merger(n_features, left, right - 1)[:, rest], first])[0]


def floats(x):
    """x with a real floating dtype: float64 for whole numbers."""
    xp = array_namespace(x)
    return x if xp.isdtype(x.dtype, "real floating") else xp.astype(x, xp.float64)


def like(array, x):
    """A cached NumPy array in x's namespace and on its device; numbers take x's dtype."""
    xp = array_namespace(x)
    if is_numpy_namespace(xp):
        return array if array.dtype.kind == "i" else array.astype(x.dtype, copy=False)
    dtype = None if array.dtype.kind == "i" else x.dtype
    return xp.asarray(array.copy(), dtype=dtype, device=device(x))
