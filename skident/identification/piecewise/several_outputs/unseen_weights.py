"""Weights of the second layer whose unit of the first was silent at all critical points so far, from short lines."""

from __future__ import annotations

import numpy as np

from skident.oracle import NotIdentified

from .shared_jacobians import scanned

__all__ = ["measure_unseen"]

_DISTANCE = 0.1  # of the points from the boundary of the silent unit, over the scale there: predictions hold nearby
_SPREAD = 0.3  # of the points around known critical points, over the scale there
_CANDIDATES = 60  # points of which the nearest with a predicted critical point are tried
_GRID = 61  # positions on the line through each at which the unit is predicted
_REACH = 3.0  # of that line, over the scale there
_MARGIN = 3.0  # of an unknown weight over the largest known one
_PAIRS = 3  # first pairs of points on a short line: it crosses few boundaries
_TRIES = 3  # short lines per weight (budget: about 12 queries each)
_TINY = np.finfo(float).tiny  # instead of zero, where something is divided by


def measure_unseen(space, first, unit, v, unseen, same_direction, rng):
    """Short `ScannedLine` s that cross the boundary of a unit of the second layer where silent units are active.

    The first layer has weights W (D, m_1) and biases b. The unit has weights and bias v (m_1 + 1,) but for those that
    are `unseen`. One critical point determines one of them, if all others are known.
    """
    W, b = first
    v, unseen, lines, left = v.copy(), unseen[:-1].copy(), [], 0
    while unseen.sum() not in (0, left):
        left = unseen.sum()
        for i in np.flatnonzero(unseen):
            for origin, direction, t, half in _windows(space, W, b, v, unseen, i, unit.points, rng)[:_TRIES]:
                line = _critical_points(space, origin, direction, t, half, unit, same_direction, rng)
                if line is None:
                    continue
                z = np.maximum(line.points[0] @ W + b, 0.0)
                v[i] = -(np.append(z, 1.0) @ np.where(np.arange(len(v)) == i, 0.0, v)) / max(z[i], _TINY)
                unseen[i] = False
                lines.append(line)
                break
    return lines


def _critical_points(space, origin, direction, t, half, unit, same_direction, rng):
    """The short line with the only critical point of the unit on it; None if there is none, or several."""
    try:
        line = scanned(space, origin, direction, t - half, t + half, rng, length_scale=space.unit, n_pairs=_PAIRS)
    except NotIdentified:
        return None
    same = np.flatnonzero(line.units @ unit.direction > 1.0 - same_direction)
    return line.only(same) if len(same) == 1 else None


def _windows(space, W, b, v, unseen, i, points, rng):
    """Origins, directions (D,), positions and half lengths of short lines, the nearest to the center first.

    On them unit i of the first layer is active by a little, and all other active ones have known weights.
    """
    D, w = len(W), W[:, i]
    P = points[rng.randint(len(points), size=_CANDIDATES)]
    scales = (space.unit + np.linalg.norm(P, axis=1)) / np.sqrt(D)
    P = P + (_SPREAD * scales)[:, None] * rng.standard_normal(P.shape)
    depth = _DISTANCE * scales * np.linalg.norm(w)
    P += ((depth - P @ w - b[i]) / (w @ w))[:, None] * w
    known = np.where(np.append(unseen, False), 0.0, v)
    G = ((P @ W + b > 0.0) * known[:-1]) @ W.T
    G -= (G @ w / (w @ w))[:, None] * w
    G /= np.maximum(np.linalg.norm(G, axis=1), _TINY)[:, None]
    T = scales[:, None] * np.linspace(-_REACH, _REACH, _GRID)
    Z = (P @ W + b)[:, None] + T[:, :, None] * (G @ W)[:, None]
    others = unseen & (np.arange(len(b)) != i)
    hidden = np.any(Z[:, :, others] > 0.0, axis=2)
    F = np.maximum(Z, 0.0) @ known[:-1] + known[-1]
    found = []
    for k, j in zip(*np.nonzero(F[:, :-1] * F[:, 1:] < 0.0), strict=True):
        step = T[k, j + 1] - T[k, j]
        slope = (F[k, j + 1] - F[k, j]) / step
        half = _MARGIN * np.abs(known[:-1]).max() * depth[k] / abs(slope) + step
        t = T[k, j] - F[k, j] / slope
        inside = np.abs(T[k] - t) <= half + step
        if not hidden[k, inside].any() and half < _REACH * scales[k]:
            found.append((scales[k] + half, P[k], G[k], t, half))
    return [one[1:] for one in sorted(found, key=lambda one: one[0])]
