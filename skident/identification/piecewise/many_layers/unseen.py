"""Weights of units to inputs that are inactive at all of their critical points so far, from short lines."""

import numpy as np

from skident.linalg import lapack
from skident.oracle import NotIdentified

from ...constants import SAME_PART, SPREAD, TRIES
from ..several_outputs.shared_jacobians import scanned

_STARTS = 20  # critical points of the unit from which its boundary is extended to the input's boundary
_ROOM = 1e-5  # distance of these points from other boundaries, over the length scale there
_SEARCH_STEPS = 25  # of that
_DEPTHS = (0.01, 0.002, 0.03)  # of points beside the input's boundary, over the usual size of its pre-activation
_REACHED = 1e-8  # residual of points that are on both boundaries
_FARTHEST = 30.0  # of these points from the center, over sqrt(D)
_LARGEST_WEIGHT = 8.0  # of an unseen weight, over the norm of the known ones
_LEAST_WEIGHT = 1e-6  # of a unit whose known weights have norm 1: less is another boundary through the point
_SAME_JUMP = 1e-9  # one minus the cosine of jumps of one unit on both sides of the input's boundary
_AT_POINT = 1e-6  # distance of a critical point from where it was predicted, over the length scale there
_PAIRS = 5  # first pairs of points on a short line
_MOST_CROSSED = 30  # boundaries on it (budget)
_JUST_BEHIND = 40  # points just behind an input's boundary at which the unit has one sign if it keeps it
_SAME_SIGN = 0.9  # mean of these signs
_STEPS_BEFORE = 3  # to there: other boundaries are between
_BEFORE = 1.001  # length of these steps over the distance of the boundary


def complete_unit(search, unit):
    """Set the unknown weights of a `Unit` one by one; whether any was set.

    Where its boundary does not reach that of an input, the unit keeps its sign wherever the input is active.
    """
    done, tried = False, {}
    while True:
        n_known = unit.mask.sum()
        for u in np.flatnonzero(~unit.mask):
            if tried.get(u) == n_known:
                continue
            tried[u] = n_known
            weight, points = _weight(search, unit, u)
            if weight is not None:
                unit.w[u], unit.mask[u] = weight, True
                unit.aimed = np.concatenate([unit.aimed, points])
                done = True
        if unit.mask.sum() == n_known:
            break
    unit.kept = _kept_signs(search, unit)
    return done


def _kept_signs(search, unit):
    """Signs (m,) that the unit has where an input with unknown weight begins to be active; 0 if it has both.

    They are those on the other side of the input's boundary: on its own side, units of the layer before whose weight to
    the same input is unknown are wrong, too.
    """
    H, signs = search.grid[search.grid_certain], np.zeros(len(unit.mask))
    X = search.critical.lines.grid_points[search.grid_certain]
    for u in np.flatnonzero(~unit.mask):
        others = ~unit.mask & (np.arange(len(unit.mask)) != u)
        near = np.flatnonzero((H[:, u] > 0.0) & ~np.any(H[:, others] > 0.0, axis=1))
        before = search.prefix.outputs(_moved_before(search.prefix, X[near[np.argsort(H[near, u])[:_JUST_BEHIND]]], u))
        before = before[~np.any(before[:, ~unit.mask] > 0.0, axis=1)]
        z = before @ (unit.w * unit.mask) + unit.b
        if len(z) and abs(np.sign(z).mean()) > _SAME_SIGN:
            signs[u] = np.sign(z.sum())
    return signs


def _moved_before(prefix, X, u):
    """Points X (n, D) moved to just before the boundary of input u, where it is inactive."""
    for _ in range(_STEPS_BEFORE):
        Z, G = (part[:, u] for part in prefix.pre_activations(X))
        size = np.maximum(np.sum(G**2, axis=1), np.finfo(float).tiny)
        X = X - (_BEFORE * Z / size * (Z > 0.0))[:, None] * G
    return X


def _weight(search, unit, u):
    """The weight of one input and two points (2, D) that agree on it; or None if it stays unknown, and none."""
    found, points = [], []
    for depth in _DEPTHS:
        before, after = _corner_points(search, unit, u, depth)
        for x, y in list(zip(before, after, strict=True))[:TRIES]:
            one = _weight_at(search, unit, u, x, y)
            if one is None:
                continue
            value, point = one
            same = [k for k, other in enumerate(found) if abs(value - other) < SAME_PART * (1.0 + abs(other))]
            if same:
                return value, np.array([points[same[0]], point])
            found, points = [*found, value], [*points, point]
    return None, search.critical.points[:0]


def _corner_points(search, unit, u, depth):
    """Points (n, D) where the unit, without the weight, vanishes: beside the boundary of input u, on both sides."""
    prefix = search.prefix
    Z = prefix.pre_activations(search.critical.points[unit.members])[0][:, u]
    order = np.argsort(np.abs(Z))[:_STARTS]
    start, target = search.critical.points[np.resize(unit.members[order], _STARTS)], depth * np.median(np.abs(Z))
    again = np.arange(_STARTS) >= len(order)
    start = start + again[:, None] * SPREAD * search.rng.standard_normal(start.shape)
    before, one = _moved(search, unit, u, start, -target)
    after, other = _moved(search, unit, u, before, target)
    return before[one & other], after[one & other]


def _moved(search, unit, u, X, target):
    """Points X (n, D) moved to where input u has pre-activation `target`, and the unit vanishes; which arrived (n,)."""
    prefix, known = search.prefix, unit.w * unit.mask
    for _ in range(_SEARCH_STEPS):
        H, A = prefix.outputs_and_gradients(X)
        P, Q = prefix.pre_activations(X)
        values = np.column_stack([H @ known + unit.b, P[:, u] - target])
        M = np.stack([np.einsum("nmd,m->nd", A, known), Q[:, u]], axis=1)
        X = X - np.einsum("ndk,nk->nd", lapack.pinv(M, rcond=1e-6), values)
    H, P = prefix.outputs(X), prefix.pre_activations(X)[0][:, u]
    others = ~unit.mask & (np.arange(len(unit.w)) != u)
    arrived = (np.abs(H @ known + unit.b) < _REACHED * search.scale) & (np.abs(P - target) < _REACHED * search.scale)
    arrived &= ~np.any(H[:, others] > 0.0, axis=1) & prefix.certain(X)
    arrived &= prefix.room(X) > _ROOM * (search.critical.space.unit + np.linalg.norm(X, axis=1))
    return X, arrived & (np.linalg.norm(X, axis=1) < _FARTHEST * np.sqrt(X.shape[1]))


def _weight_at(search, unit, u, x, y):
    """The weight of input u and a critical point (D,), from lines through x, before its boundary, and y behind it.

    Both are on the unit's boundary if the weight is zero. Its jump is the same on both sides: behind the boundary, it
    shows which critical point is the unit's. None if none is, or several are.
    """
    prefix, known = search.prefix, unit.w * unit.mask
    H, A = prefix.outputs_and_gradients(y[None])
    g, o = A[0].T @ known, A[0, u]
    if not o.any():
        return None
    g = g - o * (g @ o) / (o @ o)
    length = np.linalg.norm(g)
    if length < 1e-9:
        return None
    half, g = _LARGEST_WEIGHT * H[0, u] / length, g / length
    line = _scanned(search, x, g, 0.1 * half)
    if line is None or len(line.positions) == 0:
        return None
    k = int(np.argmin(np.abs(line.positions)))
    if abs(line.positions[k]) > _AT_POINT * (search.critical.space.unit + np.linalg.norm(x)):
        return None
    jump = line.units[k]
    line = _scanned(search, y, g, half)
    if line is None or len(line.positions) == 0:
        return None
    H = prefix.outputs(line.points)
    others = ~unit.mask & (np.arange(len(unit.w)) != u)
    usable = (H[:, u] > 0.0) & ~np.any(H[:, others] > 0.0, axis=1)
    usable &= np.abs(line.units @ jump) > 1.0 - _SAME_JUMP
    if usable.sum() != 1:
        return None
    k = int(np.flatnonzero(usable)[0])
    value = -(H[k] @ known + unit.b) / H[k, u]
    return None if abs(value) < _LEAST_WEIGHT else (value, line.points[k])


def _scanned(search, x, direction, half):
    """The line through x (D,), as far as `half` to either side; None if too many boundaries are there."""
    space = search.critical.space
    options = {"length_scale": space.unit, "n_pairs": _PAIRS, "max_boundaries": _MOST_CROSSED}
    try:
        return scanned(space.seen_from(x), x, direction, -0.9 * half, half, search.rng, **options)
    except NotIdentified:
        return None
