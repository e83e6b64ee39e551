"""Weights of the second layer whose unit of the first was silent at all critical points so far, from short lines."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from skident.oracle import NotIdentified

from .shared_jacobians import scanned

__all__ = ["measure_unseen"]

_DISTANCE = 0.05  # of points from the boundary of the silent unit, over the scale there: errors grow with its inverse
_SPREAD = 0.3  # of points around known critical points, the same
_FARTHER = (2.0, 6.0)  # the same once all weights are known
_NEARER = (0.01, 0.03)  # factors of both, nearer than which the same units are active as at known critical points
_CANDIDATES = 60  # points of which the nearest with a predicted critical point are tried
_GRID = 61  # positions on the line through each at which the unit is predicted
_REACH = 3.0  # of that line, over the scale there
_MARGIN = 2.0  # of an unknown weight over the largest known one
_PAIRS = 3  # first pairs of points on a short line: it crosses few boundaries
_ROOT_TOL = 1e-3  # of a predicted position, over a step between positions at which the unit is predicted
_MOST_CROSSED = 40  # boundaries of other units on it (budget)
_ERROR = 0.2  # of a known weight whose critical points are too near, the same
_TRIES = 3  # short lines per weight (budget: about 12 queries each)
_TINY = np.finfo(float).tiny  # instead of zero, where something is divided by


def measure_unseen(space, first, unit, v, unseen, same_direction, rng):
    """Short `ScannedLine` s that cross the boundary of a unit of the second layer where silent units are active.

    The first layer has weights W (D, m_1) and biases b. The unit has weights and bias v (m_1 + 1,) but for those that
    are `unseen`. One critical point determines one of them, if all others are known.
    """
    W, b = first
    v, unseen, points, lines, left, near = v.copy(), unseen[:-1].copy(), unit.points, [], 0, []

    def crossed(i, nearer):
        for origin, direction, t, half in _windows(space, W, b, v, unseen, i, points, nearer, rng)[:_TRIES]:
            line = _critical_points(space, origin, direction, t, half, unit, same_direction, rng)
            if line is not None:
                lines.append(line)
                return np.maximum(line.points[0] @ W + b, 0.0)
        return None

    first_unseen = np.flatnonzero(unseen)
    while unseen.sum() not in (0, left):
        left = unseen.sum()
        for i in np.flatnonzero(unseen):
            z = crossed(i, (1.0, 1.0))
            if z is None:
                z = crossed(i, _NEARER)
                near += [] if z is None else [i]
            if z is not None:
                v[i] = -(np.append(z, 1.0) @ np.where(np.arange(len(v)) == i, 0.0, v)) / max(z[i], _TINY)
                unseen[i], points = False, np.concatenate([points, lines[-1].points])
    if near and not unseen.any():  # all other weights are known farther away as well
        for i in first_unseen:
            crossed(i, _FARTHER)
    return lines


def _critical_points(space, origin, direction, t, half, unit, same_direction, rng):
    """The short line with the only critical point of the unit on it; None if there is none, or several."""
    try:
        options = {"length_scale": space.unit, "n_pairs": _PAIRS, "max_boundaries": _MOST_CROSSED}
        line = scanned(space.seen_from(origin), origin, direction, t - half, t + half, rng, **options)
    except NotIdentified:
        return None
    same = np.flatnonzero(line.units @ unit.direction > 1.0 - same_direction)
    return line.only(same) if len(same) == 1 else None


def _windows(space, W, b, v, unseen, i, points, nearer, rng):
    """Origins, directions (D,), positions and half lengths of short lines, the nearest to the center first.

    On them unit i of the first layer is active by a little, and all other active ones have known weights.
    """
    D, w = len(W), W[:, i]
    P = points[rng.randint(len(points), size=_CANDIDATES)]
    scales = (space.unit + np.linalg.norm(P, axis=1)) / np.sqrt(D)
    spreads, distances = (np.exp(rng.uniform(*np.sort([np.log(factor), 0.0]), len(P))) for factor in nearer)
    P = P + (_SPREAD * spreads * scales)[:, None] * rng.standard_normal(P.shape)
    depth = _DISTANCE * distances * scales * np.linalg.norm(w)
    P += ((depth - P @ w - b[i]) / (w @ w))[:, None] * w
    known = np.where(np.append(unseen, False), 0.0, v)
    G = ((P @ W + b > 0.0) * known[:-1]) @ W.T
    G -= (G @ w / (w @ w))[:, None] * w
    G /= np.maximum(np.linalg.norm(G, axis=1), _TINY)[:, None]
    T = scales[:, None] * np.linspace(-_REACH, _REACH, _GRID)
    Z = (P @ W + b)[:, None] + T[:, :, None] * (G @ W)[:, None]
    others = unseen & (np.arange(len(b)) != i)
    F = np.maximum(Z, 0.0) @ known[:-1] + known[-1]
    found = []
    for k, j in zip(*np.nonzero(F[:, :-1] * F[:, 1:] < 0.0), strict=True):
        t, slope = _root((P[k] @ W + b, G[k] @ W), known, T[k, j], T[k, j + 1])
        unknown = _MARGIN if unseen[i] else _ERROR
        half = unknown * np.abs(known[:-1]).max() * depth[k] / max(abs(slope), _TINY)
        ends = (P[k] @ W + b) + np.array([[t - half], [t + half]]) * (G[k] @ W)
        if not np.any(ends[:, others] > 0.0) and half < _REACH * scales[k]:
            found.append((-distances[k], scales[k] * half, P[k], G[k], t, half))
    return [one[2:] for one in sorted(found, key=lambda one: one[:2])]


def _root(line, v, low, high):
    """A zero of ``v . relu(z)`` on a line of pre-activations between positions of other signs, and the slope there."""

    def at(t):
        return np.maximum(line[0] + t * line[1], 0.0) @ v[:-1] + v[-1]

    t = brentq(at, low, high, xtol=_ROOT_TOL * (high - low))
    return t, ((line[0] + t * line[1] > 0.0) * line[1]) @ v[:-1]
