"""A unit of the second layer from boundary points that all other units explain up to one affine function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.linalg import lapack

from ...constants import EXPLAINED_DISTANCE, RANK_TOL
from .logits import with_one

__all__ = ["with_missing_unit"]

_EXTRA = 4  # points beyond the unknowns that must fit as well (statistics)
_FIT = 1e-9  # residual of a fit, relative to its largest value


def with_missing_unit(logits, X):
    """Logits (two classes) with one more unit that explains boundary points X (n, D) that contradict them, or None.

    On one side of its hyperplane the unit adds an affine function of the first layer's activations: minus the logits
    at the boundary points there. Several units may be missing: points near one another have the same one.
    """
    h, values, pairs = with_one(logits.hidden(X)), logits(X) @ [1.0, -1.0], np.tile([1, 0], (len(X), 1))
    best, most, n = None, 0, h.shape[1]
    for center in h if len(h) >= n + _EXTRA else ():
        use = np.argsort(np.linalg.norm(h - center, axis=1))[: n + _EXTRA]
        v, _, rank, _ = lapack.lstsq(h[use], values[use], rcond=RANK_TOL)
        side = np.sign(h[use] @ v)
        off = np.abs(h[use] @ v - values[use]).max() > _FIT * np.abs(values[use]).max()
        if rank < n or off or np.any(side != side[0]):
            continue
        added = _added(logits, v, side[0])
        explained = int(np.sum(added.distances(X, pairs) < EXPLAINED_DISTANCE))
        if explained > most:
            best, most = added, explained
    return best


def _added(logits, v, side):
    """The logits with ``side * relu(side * v @ (h, 1))`` added to the difference of the classes."""
    m, size = len(logits.hyperplanes), np.linalg.norm(v[:-1])
    coef = np.insert(logits.coef, m, 0.0, axis=0)
    coef[m:, 1] += np.insert(v / 2, 0, side * size / 2)
    return replace(logits, hyperplanes=np.vstack([logits.hyperplanes, v / size]), coef=coef)
