"""Hyperplanes of first-layer units among candidates: the boundary bends wherever it meets one of these."""

import numpy as np

from ...constants import WITHIN_RADII
from .points import bisect, bracket

_N_SEGMENTS = 24  # per draw (budget)
_MAX_DRAWS = 12  # (budget)
_OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])  # of boundary points from the hyperplane, over the step
_STEPS = (3e-3, 3e-4)  # in standard deviations
_HALF_WIDTH = 8.0  # of the intervals that are bisected, in steps: the boundary may be tilted
_TRIED_PER_PLACE = 4  # places at which the boundary may not be straight, per place wanted (budget)
_STRAIGHT = 1e-8  # deviation from a straight line, over the step, on each side of the hyperplane
_ROUGHLY_STRAIGHT = 1e-6  # that deviation if points are bisected roughly (budget)
_DEVIATION_ROUNDING = 1e-13  # of such a deviation
_BEND = 10.0  # straight deviations from which the boundary bends
_BISECTED = 0.1  # error of these points, over the deviation


def bends_along(labels, w, points, rng, wanted=5, rough=False):
    """Number of places on the hyperplane w (r + 1,) at which the boundary bends, and number of places examined.

    Segments within it start and end at random inputs and below boundary points (n, r): a class may be rare.
    """
    tol = _ROUGHLY_STRAIGHT if rough else _STRAIGHT
    n, offset = w[:-1], w[-1]
    hits = total = tried = 0
    for _ in range(_MAX_DRAWS):
        ends = labels.draw(_N_SEGMENTS, rng, WITHIN_RADII)
        if len(points):
            ends = np.vstack([ends, points[rng.randint(len(points), size=_N_SEGMENTS)]])
        ends = rng.permutation(ends)
        ends = ends - np.outer(ends @ n + offset, n)
        seen = labels(ends)
        differ = (seen[:, None] != seen) & (seen[:, None] >= 0) & (seen >= 0)
        i = np.argsort(np.where(np.any(differ, axis=1), np.sum(seen[:, None] == seen, axis=1), len(seen)))
        i = [k for k in i if np.any(differ[k])][: wanted - total]
        if not len(i):
            continue
        j = [rng.choice(np.flatnonzero(differ[k])) for k in i]
        P, U = ends[i], ends[j] - ends[i]
        t, below, above = bisect(labels, P, U, 0.0, 1.0, seen[i])
        X, U = P + t[:, None] * U, U / np.linalg.norm(U, axis=1)[:, None]
        bent = _bent(labels, X, U, n, (above, below), tol)
        hits, total, tried = hits + int(np.sum(bent == 1)), total + int(np.sum(bent >= 0)), tried + len(i)
        if total >= wanted or tried >= _TRIED_PER_PLACE * wanted:
            break
    return hits, total


def _bent(labels, X, U, n, pair, straight):
    """Whether the boundary bends along n at its points X (k, D): 1, 0, or -1 unless it is straight on both sides."""
    bent, D = np.full(len(X), -1), X.shape[1]
    for step in _STEPS:
        Z, V = X[:, None] + (step * _OFFSETS)[:, None] * n, np.repeat(U, len(_OFFSETS), axis=0)
        above, below = (np.repeat(side, len(_OFFSETS)) for side in pair)
        size, tol = _HALF_WIDTH * step, straight * step + _DEVIATION_ROUNDING
        inside = bracket(labels, Z.reshape(-1, D), V, size, (above, below)).reshape(len(X), -1)
        i = np.repeat((bent < 0) & np.all(inside, axis=1), len(_OFFSETS))
        t, _, seen = bisect(labels, Z.reshape(-1, D)[i], V[i], -size, size, below[i], _BISECTED * tol)
        t, two = t.reshape(-1, len(_OFFSETS)), np.all((seen == above[i]).reshape(-1, len(_OFFSETS)), axis=1)
        left, right = 2 * t[:, 1] - t[:, 0], 2 * t[:, 2] - t[:, 3]  # both lines meet the hyperplane at x
        flat = two & (np.maximum(np.abs(left), np.abs(right)) <= tol)
        bent[np.flatnonzero(i[:: len(_OFFSETS)])[flat]] = np.abs(t[:, 1] + t[:, 2])[flat] > _BEND * tol
        if np.all(bent >= 0):
            break
    return bent
