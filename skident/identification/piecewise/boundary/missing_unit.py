"""A unit of the second layer from boundary points that all other units explain up to one affine function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.linalg import lapack, svd

from .points import bisect

__all__ = ["with_missing_unit"]

_OFF = 1e-7  # distance of a boundary point from the network's boundary, over 1 + |x|, that is an error
_RADII = (2.0, 1.0, 0.3, 0.1)  # around such a point, within which further ones are bisected, in standard deviations
_N_AROUND = 8  # segments around a point (budget)
_ROUNDS = 25  # points around which further ones are bisected (budget)
_EXTRA = 4  # points beyond the unknowns that must fit as well (statistics)
_POOL = 3  # times the points of a fit: several units may be missing
_TRIES = 60  # subsets of points that are fitted
_FIT = 1e-9  # residual of a fit, relative to its largest value
_MIN_WEIGHT = 1e-9  # of a point at which no unit is active: there may be no others (rounding)
_MIN_SINGULAR = 1e-6  # relative, of a fit whose unit is determined


def with_missing_unit(labels, logits, X, known, rng):
    """Logits (two classes) with one more unit that explains more boundary points `known` (n, D); None if none does.

    On one side of its hyperplane the unit adds an affine function of the first layer's activations: minus the logits
    at the boundary points there. X are points that contradict the logits.
    """
    X, unknowns = _pool(labels, logits, X, rng), logits.second.shape[1]
    if len(X) < unknowns + _EXTRA:
        return None
    h = np.column_stack([logits.hidden(X), np.ones(len(X))])
    values = -(logits(X) @ [-1.0, 1.0])
    best, most = None, _n_explained(logits, known)
    for k in range(_TRIES):
        near = np.linalg.norm(h - h[rng.randint(len(h))], axis=1)
        use = np.argsort(near)[: unknowns + _EXTRA] if k else np.arange(len(h))
        v, _, _, s = lapack.lstsq(h[use], values[use], rcond=None)
        if s[-1] < _MIN_SINGULAR * s[0] or np.abs(h[use] @ v - values[use]).max() > _FIT * np.abs(values[use]).max():
            continue
        side = np.sign(h[use] @ v)
        if np.all(side == side[0]):
            added = _added(logits, v, side[0])
            if (n := _n_explained(added, known)) > most:
                best, most = added, n
    return best


def _n_explained(logits, X):
    return int(np.sum(logits.distances(X, np.tile([1, 0], (len(X), 1))) < _OFF))


def _added(logits, v, side):
    """The logits with ``side * relu(side * v @ (h, 1))`` added to the difference of the classes."""
    m, size = len(logits.second), np.linalg.norm(v[:-1])
    change = np.insert(v / 2, 0, side * size / 2)
    coef = np.insert(logits.coef, m, 0.0, axis=0)
    coef[m:, 1] += change
    return replace(logits, second=np.vstack([logits.second, v / size]), coef=coef).normalized()


def _pool(labels, logits, X, rng):
    """Boundary points that contradict the logits: X, and others around these where other units are active."""
    wanted, pool = _POOL * (logits.second.shape[1] + _EXTRA), np.array(X)
    for _ in range(_ROUNDS):
        h = logits.hidden(pool)
        if len(pool) >= wanted and _determined(h):
            break
        rare = _MIN_WEIGHT + (h > 0) @ (1.0 / np.maximum(np.sum(h > 0, axis=0), 1))
        x = pool[rng.choice(len(pool), p=rare / rare.sum())]
        ends = x + _RADII[rng.randint(len(_RADII))] * rng.standard_normal((2 * _N_AROUND, len(x)))
        P, Q = ends[::2], ends[1::2]
        p, q = labels(P), labels(Q)
        i = np.flatnonzero((p != q) & (p >= 0) & (q >= 0))
        if len(i):
            t, _, _ = bisect(labels, P[i], Q[i] - P[i], 0.0, 1.0, p[i])
            Y = P[i] + t[:, None] * (Q[i] - P[i])
            pool = np.vstack([pool, Y[logits.distances(Y, np.tile([1, 0], (len(Y), 1))) > _OFF]])
    return pool


def _determined(h):
    """Whether affine functions of activations h (n, m) are determined by their values."""
    s = svd(np.column_stack([h, np.ones(len(h))]), compute_uv=False)
    return s[-1] > _MIN_SINGULAR * s[0]
