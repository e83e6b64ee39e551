"""Weights of second-layer units from outputs on the rarer side of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...constants import LEAST_GAIN, LEAST_SHARE, WRONG
from .robust import least_absolute_fit
from .sampling import points_on_side

__all__ = ["with_refitted_units"]

_RARE = 0.05  # share of points up to which a unit is refitted: the polish determines the others
_POINTS_PER_WEIGHT = 2  # points per weight, and beyond:
_MORE = 20  # more
_POINT_ROUNDS = 2  # of points: the second ones are on the side of the first fit


def with_refitted_units(layers, residual_of, pool, rng):
    """`TwoLayers` at their rarer signs with the weights of rarely active units from outputs where they are active.

    ``residual_of(layers)`` is a function as `find_missing_unit` takes it; points come from a pool (N, D).
    """
    active = np.mean(layers.hidden(pool) @ layers.W2 + layers.b2 > 0, axis=0)
    for k in np.flatnonzero(active < _RARE):
        for _ in range(_POINT_ROUNDS):
            larger = _refitted(layers, k, residual_of, pool, rng)
            if larger is None:
                break
            layers = larger
    return layers


def _refitted(layers, k, residual_of, pool, rng):
    """The layers with new weights of unit k; None if those explain hardly more points."""
    n = _POINTS_PER_WEIGHT * (len(layers.b1) + 1) + _MORE
    X = points_on_side(layers, k, 1.0, pool, n, rng)
    if len(X) < _MORE:
        return None
    X, R, std = residual_of(layers)(X)
    before = np.mean(np.linalg.norm(R, axis=1) < WRONG * std)
    if before > 1.0 - LEAST_GAIN:
        return None
    H, o = layers.hidden(X), layers.W3[k]
    tol = WRONG * float(np.median(std)) / np.linalg.norm(o)
    used = np.flatnonzero(np.count_nonzero(H, axis=0) > 0)
    A = np.column_stack([H[:, used], np.ones(len(X))])
    change, residual = least_absolute_fit(A, (R @ o / (o @ o))[:, None], tol)
    if np.mean(residual < 1.0) < max(before + LEAST_GAIN, LEAST_SHARE):
        return None
    W2, b2 = layers.W2.copy(), layers.b2.copy()
    W2[used, k] += change[:-1, 0]
    b2[k] += change[-1, 0]
    return replace(layers, W2=W2, b2=b2)
