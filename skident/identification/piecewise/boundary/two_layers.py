"""Recover the logits of a classifier with two hidden ReLU layers from labels, by peeling its first layer.

Where all units of the first layer are active, their activations are an affine function of the inputs: there the model
has one hidden layer. That region is a cone whose walls are the first layer's hyperplanes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.budget.constants import MANY_ROUNDS
from skident.linalg import lapack
from skident.oracle import NotIdentified

from ...constants import EXPLAINED_DISTANCE, LINES_PER_PARAMETER, MORE_POINTS
from .checks import wrong_boundary_points
from .deep_logits import DeepLogits, refined_deep
from .first_layer import FirstLayer
from .joint import MAX_UNKNOWNS, null_space, separating
from .missing_unit import with_missing_unit
from .one_layer import Found, one_layer, open_coefficients
from .peeled import Peeled
from .points import bisect, random_crossings
from .search import Search

__all__ = ["two_layers"]

_OVERDETERMINED = 1.4  # boundary points per unknown of the fit (statistics)
_RANDOM_SHARE = 0.3  # of the unknowns: boundary points on random segments
_N_LINES = 600  # held-out lines per class beyond the first
_CONFIRMING_LINES = 6000  # further ones before a network is exact (statistics: a share of 1e-3 shows with 97 %)
_MAX_MISSING = 6  # units that are added one by one (budget)
_MAX_RESTARTS = 2  # searches behind the first layer that begin again (budget)
_N_LABELS = 100  # per class that logits without a unit must explain (statistics)
_MAX_STARTS = 30  # boundary points that are moved into the region per round (budget)
_DEPTHS = (0.003, 0.01, 0.03, 0.1, 1e-3)  # behind the walls, to which they are moved, in standard deviations
_GRID = np.array([-1, -0.5, -0.2, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.2, 0.5, 1.0])  # of segments there


def two_layers(outer, say):
    """Recover logits with two hidden layers, after a search for one layer in the same labels; or NotIdentified."""
    first = FirstLayer(outer.labels, outer.rng, say)
    first.points, first.pairs = list(outer.points), list(outer.pairs)
    first.project(outer.facets, outer.units)
    first.search()
    _refuse_large(first)
    planes, linear = first.signed()
    inner, best, starts, restarts = _inner_search(first, planes, linear), None, None, 0
    for _ in range(MANY_ROUNDS):
        try:
            found = one_layer(inner, starts, first_layer=False)
        except NotIdentified:
            restarts += 1
            if restarts > _MAX_RESTARTS:
                if best is None:
                    raise
                return best
            first.points.extend(np.array(inner.points) @ first.basis)
            first.pairs.extend(inner.pairs)
            inner, starts = _inner_search(first, planes, linear), None
            continue
        logits = _composed(first.basis, planes, linear, found.logits)
        found, crossings = _validated(first, inner, logits)
        for _ in range(_MAX_MISSING if len(outer.labels.classes) == 2 else 0):
            if not found.wrong:
                break
            near = [s[0] @ first.basis for s in _inner_starts(inner, found.logits, crossings)]
            X = np.vstack([crossings, *near])
            X = X[found.logits.distances(X, np.tile([1, 0], (len(X), 1))) > EXPLAINED_DISTANCE]
            logits = _completed(first, inner, found.logits, X)
            if logits is None:
                break
            found, crossings = _validated(first, inner, logits)
        say(f"two layers: {found.wrong} of {found.checked} boundary points are wrong")
        if best is None or found.wrong <= best.wrong:
            best = found
        if not found.wrong:
            break
        starts = _inner_starts(inner, found.logits, crossings)
    return best


def _refuse_large(first):
    """NotIdentified if the joint fit would not fit into memory."""
    n_inputs = first.outer.n_features
    if first.rank * (n_inputs + 1) > MAX_UNKNOWNS:
        raise NotIdentified(
            "boundary", "size", f"networks with two hidden layers, {n_inputs} inputs and {first.rank} units in the "
            "first layer have too many weights for a joint fit.", final=True,
        )  # fmt: skip


def _inner_search(first, planes, linear):
    """A search for one layer where the first one is active."""
    search = Search(Peeled(first.outer, first.basis, planes, linear), first.rng, first.say)
    search.one_layer = False
    return search


def _composed(basis, planes, linear, found):
    """Logits in inputs of logits recovered in coordinates y of the region where the first layer is active."""
    A, b = planes[:, :-1], planes[:, -1]
    to_y = lapack.inv(A)  # y = to_y (h - b)
    H, m, coef = found.hyperplanes, len(found.hyperplanes), found.coef.copy()
    second = np.column_stack([H[:, :-1] @ to_y, H[:, -1] - H[:, :-1] @ to_y @ b])
    slopes = found.coef[m:-1]
    coef[m:-1], coef[-1] = to_y.T @ slopes, found.coef[-1] - (to_y @ b) @ slopes
    return DeepLogits(np.column_stack([A @ basis, b]), linear, second, coef).normalized()


def _validated(first, inner, logits):
    """The logits fitted to all boundary points with their validation, and points that contradict them."""
    labels, rng = first.outer, first.rng
    K, own = len(labels.classes), np.array(inner.points).reshape(-1, first.rank) @ first.basis
    n = logits.n_parameters
    needed = max(_OVERDETERMINED * n + MORE_POINTS - len(first.points) - len(own), _RANDOM_SHARE * n - first.random)
    while needed > 0:
        X, pairs, _ = random_crossings(labels, int(np.ceil(min(needed, 60))), rng)
        first.points.extend(X)
        first.pairs.extend(map(tuple, pairs))
        first.random, needed = first.random + len(X), needed - max(len(X), 1)
    X, pairs = np.vstack([first.points, own]), np.vstack([np.array(first.pairs), np.array(inner.pairs)])
    logits, residual = refined_deep(logits, X, pairs)
    logits, N = _without_idle_units(labels, logits, X, pairs, rng)
    lines = (K - 1) * (_N_LINES + LINES_PER_PARAMETER * n)
    checked, wrong, (at, at_pairs, _), met = wrong_boundary_points(labels, logits, lines, rng)
    if not wrong:  # units whose sign few inputs change
        more, wrong, (at, at_pairs, _), _ = wrong_boundary_points(labels, logits, (K - 1) * _CONFIRMING_LINES, rng)
        checked += more
    first.points.extend(at)
    first.pairs.extend(map(tuple, at_pairs))
    off = np.flatnonzero(logits.distances(X, pairs) > EXPLAINED_DISTANCE)
    seen = frozenset(tuple(sorted(map(int, p))) for p in pairs)
    wrong, checked = wrong + len(off), checked + len(off)
    found = Found(logits, open_coefficients(logits, N), checked, wrong, met, residual, seen)
    return found, np.vstack([at, X[rng.permutation(off)]])


def _completed(first, inner, logits, X):
    """The logits with a missing unit that explains boundary points X, or None."""
    known = np.vstack([first.points, np.array(inner.points) @ first.basis])
    return with_missing_unit(first.outer, logits, X, known, first.rng) if len(X) else None


def _without_idle_units(labels, logits, X, pairs, rng):
    """The logits without units that boundary points do not need, and the null vectors left."""
    h, n_classes, U = (
        logits.hidden(X),
        len(labels.classes),
        labels.draw(_N_LABELS * len(labels.classes), rng, (0.5, 4.0)),
    )
    N, _ = null_space(logits.second, h, pairs, n_classes)
    if len(N) < 2:
        return logits, N
    seen = labels(U)
    U, seen = logits.hidden(U[seen >= 0]), seen[seen >= 0]
    for j in range(len(logits.second) - 1, -1, -1):
        second = np.delete(logits.second, j, axis=0)
        fewer, _ = null_space(second, h, pairs, n_classes)
        coef = separating(second, fewer, U, seen) if len(fewer) == len(N) - 1 > 0 else None
        if coef is not None:  # with three classes a unit may be needed whose coefficients are undetermined
            logits, N = replace(logits, second=second, coef=coef).normalized(), fewer
    return logits, N


def _inner_starts(search, logits, X):
    """Boundary points (x, pair, u) in the region near boundary points X of the inputs."""
    labels, rng, intervals = search.labels, search.rng, []
    for h in logits.hidden(X[:_MAX_STARTS]):
        for depth in _DEPTHS:
            raised = h + ~logits.linear * depth * (0.1 + np.abs(rng.standard_normal(len(h))))
            y = lapack.solve(labels.planes[:, :-1], raised - labels.planes[:, -1])
            u = rng.standard_normal(len(y))
            u /= np.linalg.norm(u)
            seen = labels(y + _GRID[:, None] * u)
            k = np.flatnonzero((seen[1:] != seen[:-1]) & (seen[1:] >= 0) & (seen[:-1] >= 0))
            if len(k):
                k = k[np.argmin(np.abs(_GRID[k] + _GRID[k + 1]))]
                intervals.append((y, u, _GRID[k], _GRID[k + 1], seen[k]))
                break
    if not intervals:
        return []
    Y, U, low, high, below = (np.array(column) for column in zip(*intervals, strict=True))
    t, below, above = bisect(labels, Y, U, low, high, below)
    X, pairs = Y + t[:, None] * U, list(zip(above.tolist(), below.tolist(), strict=True))
    search.remember(X, pairs)
    return search.unexplained(list(zip(X, pairs, U, strict=True)))
