"""Hyperplanes of first-layer units among candidates: the boundary bends wherever it meets one of these."""

from __future__ import annotations

import numpy as np

from .points import bisect, bracket

__all__ = ["bends_along"]

_RADII = (0.5, 3.0)  # standard deviations of random segments within the hyperplane
_N_SEGMENTS = 24  # per draw (budget)
_MAX_DRAWS = 12  # (budget)
_OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])  # of boundary points from the hyperplane, over the step
_STEPS = (3e-3, 3e-4)  # in standard deviations
_STRAIGHT = 1e-8  # deviation from a straight line, over the step, on each side of the hyperplane
_ROUGHLY_STRAIGHT = 1e-6  # that deviation if points are bisected roughly (budget)
_ROUNDING = 1e-13  # of such a deviation
_BEND = 10.0  # straight deviations from which the boundary bends
_BISECTED = 0.1  # error of these points, over the deviation


def bends_along(labels, w, rng, wanted=5, rough=False):
    """Number of places on the hyperplane w (r + 1,) at which the boundary bends, and number of places examined."""
    tol = _ROUGHLY_STRAIGHT if rough else _STRAIGHT
    n, offset = w[:-1], w[-1]
    hits = total = 0
    for _ in range(_MAX_DRAWS):
        ends = labels.draw(2 * _N_SEGMENTS, rng, _RADII)
        ends = ends - np.outer(ends @ n + offset, n)
        P, Q = ends[::2], ends[1::2]
        p, q = labels(P), labels(Q)
        i = np.flatnonzero((p != q) & (p >= 0) & (q >= 0))[: wanted - total]
        if not len(i):
            continue
        t, below, above = bisect(labels, P[i], Q[i] - P[i], 0.0, 1.0, p[i])
        for k, j in enumerate(i):
            u = (Q[j] - P[j]) / np.linalg.norm(Q[j] - P[j])
            bent = _bends_at(labels, P[j] + t[k] * (Q[j] - P[j]), u, n, (above[k], below[k]), tol)
            if bent is not None:
                hits, total = hits + bent, total + 1
        if total >= wanted:
            break
    return hits, total


def _bends_at(labels, x, u, n, pair, straight):
    """Whether the boundary bends at x along n; None unless it is straight on both sides."""
    for step in _STEPS:
        Z = x + (step * _OFFSETS)[:, None] * n
        size = next((f * step for f in (1.0, 4.0, 16.0) if np.all(bracket(labels, Z, u, f * step, pair))), None)
        if size is None:
            continue
        tol = straight * step + _ROUNDING
        t, _, above = bisect(labels, Z, u, -size, size, pair[1], _BISECTED * tol)
        if np.any(above != pair[0]):
            continue
        left, right = 2 * t[1] - t[0], 2 * t[2] - t[3]  # both lines meet the hyperplane at x
        if max(abs(left), abs(right)) > tol:
            continue
        return bool(abs(t[1] + t[2]) > _BEND * tol)
    return None
