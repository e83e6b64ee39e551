"""Real estimates with a full covariance rounded to numbers of a binary format."""

import numpy as np

from .grid import nearest, spacing


def bootstrapped(values, covariance, digits):
    """Estimates (P,) with a covariance (P, P) rounded one after the other, the surest first.

    When a value is rounded, all others move to their expectation given it, and so do their standard errors: small
    weights, uncertain by many spacings at first, are determined by the large ones that they are correlated with.

    Notes
    -----
    Integer bootstrapping of Blewitt (1989), "Carrier phase ambiguity resolution for the Global Positioning System";
    Teunissen (1998), "Success probability of integer GPS ambiguity rounding and bootstrapping".
    """
    t, C = values.copy(), covariance.copy()
    left = np.ones(len(t), dtype=bool)
    tiny = np.finfo(float).tiny
    for _ in range(len(t)):
        surest = np.where(left, np.diag(C) / np.maximum(spacing(t, digits), tiny) ** 2, np.inf)
        k = int(np.argmin(surest))
        column, variance = C[:, k].copy(), max(C[k, k], tiny)
        rounded = nearest(t[k], digits)
        t -= column * ((t[k] - rounded) / variance)
        C -= np.outer(column, column / variance)
        t[k], left[k] = rounded, False
    return t
