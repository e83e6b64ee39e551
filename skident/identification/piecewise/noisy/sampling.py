"""Points at which a network with two hidden layers is fitted: near hyperplanes, and at the rarer signs of units."""

import numpy as np

_LARGEST_DISTANCE = 1.5  # largest distance of points from a hyperplane, in standard deviations of the inputs
_NEWTON_STEPS = 8  # towards the boundary of a unit, which bends at hyperplanes
_BEYOND = (0.02, 0.5)  # distances beyond the boundary of a unit, in standard deviations of the inputs
_FARTHEST = 1.3  # norm of a moved point over the largest one of the pool
_TINY = 1e-12  # square of a gradient that is 0


def moved_to_hyperplanes(W, b, X, rng):
    """Points X (n, D) moved along normals to random distances of hyperplanes ``x W + b = 0``, which take turns."""
    i = np.arange(len(X)) % len(b)
    square = np.sum(W**2, axis=0)[i]
    target = rng.uniform(-_LARGEST_DISTANCE, _LARGEST_DISTANCE, len(X)) * np.sqrt(square)
    return X + ((target - np.sum(X * W[:, i].T, axis=1) - b[i]) / square)[:, None] * W[:, i].T


def on_rarer_sides(layers, X, pool, need, rng):
    """Points (k, D) such that, with X (n, D), about `need` points are on each side of every second-layer unit.

    They come from a pool (N, D); if that has too few, points of it are moved beyond the boundary of the unit.
    """
    active = layers.hidden(X) @ layers.W2 + layers.b2 > 0
    Z = layers.hidden(pool) @ layers.W2 + layers.b2
    parts = []
    for k in range(Z.shape[1]):
        sign = 1.0 if np.mean(Z[:, k] > 0) < 0.5 else -1.0
        missing = need - int(np.sum(active[:, k] == (sign > 0)))
        if missing > 0:
            parts.append(points_on_side(layers, k, sign, pool, missing, rng))
    return np.concatenate(parts) if parts else X[:0]


def points_on_side(layers, k, sign, pool, n, rng):
    """At most n points of a pool (N, D) on the side of a sign of second-layer unit k; moved ones if those are few."""
    z = sign * (layers.hidden(pool) @ layers.W2[:, k] + layers.b2[k])
    there = np.flatnonzero(z > 0)
    X = pool[there[rng.permutation(len(there))[:n]]]
    if len(X) == n:
        return X
    near = np.argsort(-z, kind="stable")[len(there) : len(there) + 2 * (n - len(X))]
    beyond = _moved_beyond(layers, k, sign, pool[near], rng)
    beyond = beyond[np.linalg.norm(beyond, axis=1) < _FARTHEST * np.linalg.norm(pool, axis=1).max()]
    return np.concatenate([X, beyond[: n - len(X)]])


def _moved_beyond(layers, k, sign, X, rng):
    """Points (n, D) moved beyond the boundary of unit k, to the side of a sign, if that is possible."""
    beyond = rng.uniform(*_BEYOND, len(X))
    for _ in range(_NEWTON_STEPS):
        H = layers.hidden(X)
        z, g = H @ layers.W2[:, k] + layers.b2[k], ((H > 0) * layers.W2[:, k]) @ layers.W1.T
        square = np.sum(g**2, axis=1)
        step = (sign * beyond * np.sqrt(square) - z) / np.maximum(square, _TINY)
        X = X + np.where(square > _TINY, step, 0.0)[:, None] * g
    return X[sign * (layers.hidden(X) @ layers.W2[:, k] + layers.b2[k]) > 0]
