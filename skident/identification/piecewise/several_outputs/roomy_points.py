"""Points far from all activation boundaries, at which every unit of two hidden layers is active often enough."""

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack

from ...constants import CANDIDATES, FAR_RADII

LEAST_ACTIVE = 6  # points at which a unit of the second layer is active, those of the orthant included
_ACTIVE_SHARE = 0.2  # of all points: a unit with 6 of 80 had errors 100 times as large
_RANDOM = 2000  # roomy points among which those of rare pairs of units are chosen (budget: 0.5 s)
_LEAST_PAIRS = 4  # points at which two units are active together
_MOST_PAIR_POINTS = 60  # (budget)
_FLOOR = 0.1  # least pre-activation of the first layer's units at the points of rare ones, over its deviation
_CLEAR = 2.0  # ratio of the terms for and against a rare unit there


def active_units(network, X):
    """Which units of the second layer are active at X (n, k): (n, m_2)."""
    (W, V, _), (b, c, _) = network.weights, network.biases
    return np.maximum(X @ W + b, 0.0) @ V + c > 0.0


def roomy_points(network, n, rng, within_reach, known=None):
    """Points (n or more, k), each the roomiest of several, and their distances from the nearest boundary (n or more,).

    Rare units of the second layer have further points, at which the units of the first layer are all active, if too few
    `known` points (q, k) are among those at which they are. If the first layer is wider than the input, rare pairs of
    units have further points instead.
    """
    radii = np.array(FAR_RADII)[np.arange(n * CANDIDATES) % len(FAR_RADII)]
    X = within_reach(radii[:, None] * rng.standard_normal((n * CANDIDATES, network.n_inputs)))
    X, room, active = _roomiest(network, X)
    if network.n_inputs < network.layer_widths[0]:  # outputs of the first layer are not free
        more, more_room = _points_for_rare_pairs(network, rng, within_reach, np.concatenate([known, X]))
        return np.concatenate([X, more]), np.concatenate([room, more_room])
    n_active = active.sum(axis=0) + (0 if known is None else active_units(network, known).sum(axis=0))
    missing = np.maximum(max(LEAST_ACTIVE, int(_ACTIVE_SHARE * n)) - n_active, 0)
    which = np.repeat(np.repeat(np.arange(len(missing)), missing), CANDIDATES)
    if len(which) == 0:
        return X, room
    more, more_room, active = _roomiest(network, within_reach(points_with_active(network, which, rng)))
    kept = np.zeros(len(more), dtype=bool)
    for i, j in enumerate(which[::CANDIDATES]):  # points of one rare unit serve others
        kept[i] = missing[j] > 0
        missing -= kept[i] * active[i]
    return np.concatenate([X, more[kept]]), np.concatenate([room, more_room[kept]])


def points_with_active(network, which, rng):
    """Points at which units `which` of the second layer are active, and all of the first."""
    (W, V, _), (b, c, _) = network.weights, network.biases
    H, weights = rng.exponential(size=(len(which), len(b))) + _FLOOR, V[:, which].T
    up = np.sum(H * np.maximum(weights, 0.0), axis=1)
    down = np.sum(H * np.maximum(-weights, 0.0), axis=1) + np.abs(c[which])
    more = np.maximum(1.0, _CLEAR * down / np.maximum(up, TINY))
    H = np.where(weights > 0.0, H * more[:, None], H)
    return (H - b) @ lapack.pinv(W)


def _points_for_rare_pairs(network, rng, within_reach, known):
    """Points, and their distances from boundaries, at which pairs of units of both layers are active: rare pairs.

    These are active together at few of the `known` points (q, k). Weights between them are determined there only. Of
    random points, that with the most such pairs is taken each time.
    """
    radii = np.array(FAR_RADII)[np.arange(_RANDOM * CANDIDATES) % len(FAR_RADII)]
    X, room, second = _roomiest(
        network, within_reach(radii[:, None] * rng.standard_normal((len(radii), len(known[0]))))
    )
    W, b = network.weights[0], network.biases[0]
    first, second = (X @ W + b > 0.0).astype(float), second.astype(float)
    missing = _LEAST_PAIRS - (known @ W + b > 0.0).T.astype(float) @ active_units(network, known)
    chosen = []
    for _ in range(_MOST_PAIR_POINTS):
        shared = np.sum(first @ np.maximum(missing, 0.0) * second, axis=1)
        best = int(np.argmax(shared))
        if not shared[best] > 0.0:
            break
        chosen.append(best)
        missing -= np.outer(first[best], second[best])
    return X[chosen], room[chosen]


def _roomiest(network, X):
    """The best of every `CANDIDATES` points X, its distance from boundaries, and which deeper units are active."""
    room, active = room_at(network, X)
    best = room.reshape(-1, CANDIDATES).argmax(axis=1) + CANDIDATES * np.arange(len(X) // CANDIDATES)
    return X[best], room[best], active[best]


def room_at(network, X):
    """Distances (n,) of points X (n, k) from the nearest boundary, roughly, and which deeper units are active."""
    (W, V, _), (b, c, _) = network.weights, network.biases
    Z = X @ W + b
    Z2 = np.maximum(Z, 0.0) @ V + c
    room = np.min(np.abs(Z) / np.linalg.norm(W, axis=0), axis=1)
    slopes = 0.5 * np.linalg.norm(W, 2) * np.linalg.norm(V, axis=0)  # about half of the bound
    return np.minimum(room, np.min(np.abs(Z2) / np.maximum(slopes, TINY), axis=1)), Z2 > 0.0
