"""Bisection of many intervals at once for the place where a condition begins to hold."""

import numpy as np


def bisect(holds, low, high, n_steps):
    """Halve intervals to where a condition begins to hold: it does not at `low`, and does at `high`.

    Parameters
    ----------
    holds : callable
        ``t -> ndarray of bool, shape (k,)`` at places t, an array like `low`.
    low, high : ndarray of shape (k,) or (k, D)
        Ends of intervals, or of segments between points.
    n_steps : int
        Halvings, each with one call of `holds`: the ends come closer by ``2^-n_steps``.

    Returns
    -------
    low, high : ndarray of shape (k,) or (k, D)
        The last queried place where the condition does not hold, and the first where it does.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import bisect
    >>> low, high = bisect(lambda t: t**2 > 2.0, np.zeros(1), np.full(1, 4.0), 50)
    >>> print(round(float(high[0]), 9))
    1.414213562
    """
    for _ in range(n_steps):
        middle = 0.5 * (low + high)
        beyond = np.asarray(holds(middle)).reshape((-1,) + (1,) * (middle.ndim - 1))
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return low, high
