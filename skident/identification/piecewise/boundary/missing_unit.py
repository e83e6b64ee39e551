"""A missing unit of either layer from boundary points that all others explain up to one affine function."""

from dataclasses import replace

import numpy as np

from skident.linalg import lapack

from ...constants import EXPLAINED_DISTANCE, RANK_TOL
from .logits import with_one

_EXTRA = 4  # points beyond the unknowns that must fit as well (statistics)
_FIT = 1e-7  # residual of a fit, relative to its largest value


def with_missing_unit(logits, X):
    """Logits (two classes) with one more unit that explains boundary points X (n, D) that contradict them, or None.

    On one side of a hyperplane in the second layer, or where a unit of the first is off that counts as always active,
    the logits lack an affine function of what the layer acts on: minus their values at the boundary points there.
    """
    h, values, pairs = logits.hidden(X), logits(X) @ [1.0, -1.0], np.tile([1, 0], (len(X), 1))
    found = [_added(logits, v, side) for v, side in _affine(h, values)]
    if np.any(logits.linear):
        found += [_switched(logits, v, side) for v, side in _affine(h[:, logits.linear], values)]
    explained = [np.sum(f.distances(X, pairs) < EXPLAINED_DISTANCE) for f in found]
    return found[np.argmax(explained)] if any(explained) else None


def _affine(h, values):
    """Affine functions v (n + 1,) of h (k, n) that give the `values` at points near one another, with one sign there.

    Several units may be missing: points near one another have the same one.
    """
    h, n = with_one(h), h.shape[1] + 1
    for center in h if len(h) >= n + _EXTRA else ():
        use = np.argsort(np.linalg.norm(h - center, axis=1))[: n + _EXTRA]
        v, _, rank, _ = lapack.lstsq(h[use], values[use], rcond=RANK_TOL)
        side = np.sign(h[use] @ v)
        off = np.abs(h[use] @ v - values[use]).max() > _FIT * np.abs(values[use]).max()
        if rank == n and not off and np.all(side == side[0]):
            yield v, side[0]


def _added(logits, v, side):
    """The logits with ``side * relu(side * v @ (h, 1))`` added to the difference of the classes."""
    m, size = len(logits.hyperplanes), np.linalg.norm(v[:-1])
    coef = np.insert(logits.coef, m, 0.0, axis=0)
    coef[m:, 1] += np.insert(v / 2, 0, side * size / 2)
    return replace(logits, hyperplanes=np.vstack([logits.hyperplanes, v / size]), coef=coef)


def _switched(logits, v, side):
    """The logits with ``-side * v @ (h, 1)`` of the `linear` units h as a unit that is off on this side."""
    v, rows, m = -side * v, np.flatnonzero(logits.linear), len(logits.hyperplanes)
    j = rows[np.argmax(np.abs(v[:-1]))]
    change = np.eye(len(logits.first) + 1)  # of activations (h, 1): the unit takes the place of the j-th
    change[j, rows], change[j, -1] = v[:-1], v[-1]
    first = change[:-1, :-1] @ logits.first
    first[:, -1] += change[:-1, -1]
    back, linear = lapack.inv(change), logits.linear.copy()
    linear[j] = False
    coef = np.vstack([logits.coef[:m], back.T @ logits.coef[m:]])
    return replace(logits, hyperplanes=logits.hyperplanes @ back, coef=coef, first=first, linear=linear)
