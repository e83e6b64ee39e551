"""Units of the second layer from critical points in nearby linear regions, before any boundary is followed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

from skident.budget import check_deadline
from skident.budget.constants import ROUNDS
from skident.linalg import lapack, svd

from ...constants import ACCEPTED, N_INTERVALS, NORMAL_RANK_TOL
from ..kernel.gradient import gradients_at
from ..kernel.lines import Segments, Table
from ..kernel.locate import scan_segments
from .facet_unit import FacetUnit
from .follow_facets import extend_unit
from .predictions import hit_rate, refine
from .signs import layer_signs

__all__ = ["add_units_of_nearby_points"]

LEAST_UNITS = 24  # of the first layer, with fewer of which boundaries are followed for as many queries
_LEAST_INPUTS = 12  # of which q is a part
_MOST_NUMBERS = 20_000  # entries of a critical point's equations, for memory: 160 kB per point
# Critical points in balls.
_RADII = (0.5, 1.0, 1.5)  # of the centers, in standard deviations of the inputs
_LARGEST = 1.0  # radius of a ball in units of sqrt(D)
_SHRINK = 0.9  # ratio of successive radii that are tried
_PAIRS = 200  # of random points in a ball, whose patterns are compared
_MOST_DIFFERENT = 0.7  # of the inputs: units in which the points of a pair differ, in the median
_BALLS = 5  # half of the units cross a ball (budget)
_LINES = 9  # per ball (budget): a unit that crosses it is met by about five
_STEP = 0.1  # of differences over the usual one: other boundaries are near
_MOST_ERROR = 1e-5  # of a jump, relative; larger ones are left out
# Points of one unit.
_SPARE = 3  # equations beyond the unknowns that decide whose a point is
_SAME_UNIT = 1e-6  # residual of a point of that unit, over the jump
_SAME_ERRORS = 30.0  # `_SAME_UNIT` in errors of the jumps
_SAME_FAR = 1e-5  # `_SAME_UNIT` in other balls, where errors of the weights add to it
_AT_ONCE = 4000  # pairs, for memory
_LEAST_ERROR = 1e-11  # of an equation: rounding of the positions
_COEF_ERROR = 1e-6  # of directions that count as determined, beside gradients of size 1
_DETERMINED_WEIGHT = 1e-6  # part of a weight in the other ones up to which it is determined
_SAME_WEIGHT = 1e-4  # relative difference of a weight of two groups of one unit
_SHARED = 3  # weights in which they agree at least,
_AGREEING = 0.8  # and share of those that both determine
_NO_WEIGHT = 1e-3  # weight over the largest that does not distinguish units
# Units.
_SEEDS = 12  # that determine the signs
_FEW_DIRECTIONS = 4  # directions that may be left undetermined of these
_NO_SLOPE = 1e-5  # slope of inactive units that is an error of the units
_ROUNDS_EXTENDED = 15  # of following facets of a unit
_FEWEST_POINTS = 3  # of a unit; fewer determine too little


@dataclass(frozen=True)
class _Points(Table):
    """Critical points of units behind the first layer."""

    points: np.ndarray  # (n, D)
    jumps: np.ndarray  # (n, D), of the gradient across the boundary, oriented alike within a group
    errors: np.ndarray  # (n,), of the jumps, relative
    convex: np.ndarray  # (n,), whether the outputs bend upward: the sign of the outer weight
    group: np.ndarray  # (n,), points with one number are of one unit


def add_units_of_nearby_points(probe, layer, rng):
    """Give `LayerUnits` behind the first layer the signs of this and most of their units; whether that succeeded.

    Notes
    -----
    The gradient of one output jumps by ``a_j grad z_j`` at the boundary of unit j of the second layer. Between two
    points of it, in regions that differ in q units of the first layer, ``grad z_j`` changes by a combination of their
    weights, and z_j accordingly: ``D + 1`` equations in q unknowns, whatever the signs of the units. They decide
    whether two critical points are of one unit if ``q < D - 2``, as in a ball that is small enough; and the unknowns
    are weights of the unit, which identify it in other balls. Following boundaries costs 25 queries per weight.
    """
    known, balls, n_groups = layer.known, [], 0
    if not _applies(probe, known):
        return False
    for _ in range(_BALLS):
        new = _grouped(known, _critical_points(probe, known, _lines_in_ball(known, rng), rng))
        balls.append(replace(new, group=new.group + n_groups))
        n_groups += len(new)
    points = _joined_groups(known, _Points.stacked(balls))
    solution = _signs(probe, known, points, layer.slope, rng)
    if solution is None:
        return False
    layer.slope, layer.signs = solution.slope, np.sign(solution.signs)
    _add_units(probe, layer, points, rng)
    return True


def _applies(probe, known):
    """Whether a layer is wide enough, and inputs are enough to distinguish units, and not too many."""
    D, oracle = known.n_inputs, probe.oracle
    exact = oracle.accuracy.exact and oracle.input_range is None and probe.n_outputs == 1
    return exact and known.n_units >= LEAST_UNITS and D >= _LEAST_INPUTS and D * known.n_features <= _MOST_NUMBERS


def _lines_in_ball(known, rng):
    """Random `Segments` in a ball in which the patterns of most pairs of points differ in less than D units."""
    D = known.n_inputs
    center = rng.choice(_RADII) * rng.standard_normal(D)
    radius, ends = _LARGEST * np.sqrt(D), _in_unit_ball(2 * _PAIRS, D, rng)
    while True:
        check_deadline()
        active = known.evaluate(center + radius * ends)[0] > 0
        if np.median(np.sum(active[:_PAIRS] != active[_PAIRS:], axis=1)) <= _MOST_DIFFERENT * D:
            break
        radius *= _SHRINK
    V = rng.standard_normal((_LINES, D))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    origins = center + 0.5 * radius * _in_unit_ball(_LINES, D, rng)
    return Segments(origins, V, np.full(_LINES, -radius), np.full(_LINES, radius))


def _in_unit_ball(n, D, rng):
    """Random points (n, D) of the unit ball, as far out as those of lines through it."""
    X = rng.standard_normal((n, D))
    return X * rng.uniform(0.3, 1.0, (n, 1)) / np.linalg.norm(X, axis=1, keepdims=True)


def _critical_points(probe, known, lines, rng):
    """The `_Points` on lines that are not on boundaries of the first layer, each in a group of its own.

    The gradient jumps between the linear pieces beside them: at most ``2 D + 4`` queries per point.
    """
    line, t = scan_segments(probe, lines, rng, n_intervals=N_INTERVALS)
    n_lines = len(lines.low)
    # Pieces of all lines in order: one more than boundaries on every line.
    start = np.concatenate([lines.low, t])
    order = np.lexsort((start, np.concatenate([np.arange(n_lines), line])))
    piece_line = np.concatenate([np.arange(n_lines), line])[order]
    low = start[order]
    last = np.append(piece_line[1:] != piece_line[:-1], True)
    high = np.where(last, lines.high[piece_line], np.append(low[1:], 0.0))
    after = np.argsort(order)[n_lines:]  # the piece that begins at a boundary
    points = lines.at(line, t)
    new = np.flatnonzero(~known.on_boundaries(points))
    pieces, where = np.unique(np.concatenate([after[new] - 1, after[new]]), return_inverse=True)
    center, gap = 0.5 * (low + high)[pieces], 0.5 * (high - low)[pieces]
    slopes, errors = gradients_at(probe, lines.at(piece_line[pieces], center), _STEP * gap, rng)
    before, behind = np.split(where, 2)
    jumps = (slopes[behind] - slopes[before])[:, 0]
    size = np.maximum(np.linalg.norm(jumps, axis=1), np.finfo(float).tiny)
    error = (errors[before] + errors[behind]) / size
    convex = np.sum(jumps * lines.directions[line[new]], axis=1) > 0
    found = _Points(points[new], jumps, error, convex, np.arange(len(new)))
    return found.take(error < _MOST_ERROR)


def _grouped(known, points):
    """The points of one ball with groups of those that are of one unit by pairs, and jumps oriented alike."""
    label, orientation = _components(len(points), *_pairs_of_one_unit(known, points))
    return replace(points, jumps=points.jumps * orientation[:, None], group=label)


def _pairs_of_one_unit(known, points):
    """Pairs of indices (k,), (k,) of points of one unit, and whether their jumps are oriented alike (1) or not (-1)."""
    Z, D = known.evaluate(points.points)[0], known.n_inputs
    sizes, active = np.linalg.norm(points.jumps, axis=1), Z > 0
    i, j = np.triu_indices(len(points), 1)
    same = points.convex[i] == points.convex[j]
    i, j = i[same], j[same]
    q = np.concatenate([np.sum(active[i[s]] != active[j[s]], axis=1) for s in _parts(len(i))] or [np.zeros(0, int)])
    found = [np.zeros((3, 0))]
    for n_different in range(D + 2 - _SPARE):
        of_this = np.flatnonzero(q == n_different)
        for some in _parts(len(of_this)):
            check_deadline()
            a, b = i[of_this[some]], j[of_this[some]]
            k = np.nonzero(active[a] != active[b])[1].reshape(len(a), n_different)
            columns = np.concatenate([known.weights.T[k], Z[b[:, None], k][:, :, None]], axis=2)
            Q = lapack.qr(np.swapaxes(columns, 1, 2))[0]
            J = points.jumps[a]
            along = -np.sum(J * (points.points[b] - points.points[a]), axis=1)
            allowed = (_SAME_UNIT + _SAME_ERRORS * (points.errors[a] + points.errors[b])) * np.minimum(
                sizes[a], sizes[b]
            )
            for sign in (1.0, -1.0):
                rest = np.column_stack([sign * points.jumps[b] - J, along])
                rest -= np.einsum("nij,nj->ni", Q, np.einsum("nij,ni->nj", Q, rest))
                hit = np.linalg.norm(rest, axis=1) < allowed
                found.append(np.stack([a[hit], b[hit], np.full(hit.sum(), sign)]))
    i, j, sign = np.concatenate(found, axis=1)
    return i.astype(int), j.astype(int), sign


def _parts(n):
    """Slices of at most `_AT_ONCE` of n items."""
    return [slice(k, k + _AT_ONCE) for k in range(0, n, _AT_ONCE)]


class _Candidate:
    """A unit ``B w`` of the features from critical points, with gradients in units of the most accurate one's jump.

    Attributes: `w` (q,), orthonormal `rows` (k, q) of the directions that are determined and `free` (q, r) of others.
    """

    def __init__(self, points, E):
        """Points of one unit, oriented alike, with equations E (n, D + 1, q)."""
        best = np.argmin(points.errors)
        order = np.append(best, np.delete(np.arange(len(points)), best))
        self.points, self.E = points.take(order), E[order]
        self.size = float(np.linalg.norm(self.points.jumps[0]))
        self._solve()

    def add(self, points, E):
        """Add points with their equations."""
        self.points, self.E = self.points.joined(points), np.concatenate([self.E, E])
        self._solve()

    def _solve(self):
        points, (n, k, q) = self.points, self.E.shape
        y = np.column_stack([points.jumps / self.size, np.zeros(n)])
        errors = np.repeat((points.errors * np.linalg.norm(points.jumps, axis=1) / self.size)[:, None], k, axis=1)
        errors[:, -1] = 0.0
        errors = np.maximum(errors, _LEAST_ERROR)
        U, s, Vt = svd((self.E / errors[:, :, None]).reshape(-1, q), full_matrices=n * k < q)
        kept = int(np.sum(s > 1.0 / _COEF_ERROR))
        self.rows, self.free = Vt[:kept], Vt[kept:].T
        self.w = self.rows.T @ ((U[:, :kept].T @ (y / errors).ravel()) / s[:kept])

    def as_unit(self, known, basis=None):
        """The `FacetUnit`."""
        points = self.points
        unit = FacetUnit(known, points.points[0], points.jumps[0] / self.size, basis, points.errors[0])
        rows = self.rows if basis is None else self.rows @ lapack.pinv(basis)
        unit.add_equations(rows, self.rows @ self.w, points.points[1:])
        return unit


def _equations(known, X):
    """Gradients of the features at points (n, D), and the features: (n, D + 1, T)."""
    Z, phi = known.evaluate(X)
    return np.concatenate([np.swapaxes(known.feature_gradients(Z > 0), 1, 2), phi[:, None]], axis=1)


def _joined_groups(known, points):
    """The points with groups of different balls joined if they agree in the weights that both determine."""
    found, index = np.unique(points.group, return_inverse=True)
    weights = np.zeros((len(found), known.n_units))
    for g in np.flatnonzero(np.bincount(index) > 1):
        check_deadline()
        one = _candidate(known, points.take(index == g))
        determined = np.linalg.norm(one.free[: known.n_units], axis=1) < _DETERMINED_WEIGHT
        weights[g] = np.where(determined, one.size * one.w[: known.n_units], 0.0)
    weights[np.abs(weights) < _NO_WEIGHT * np.abs(weights).max(axis=1, keepdims=True)] = 0.0
    edges = [np.zeros((3, 0))]
    for g in np.flatnonzero(np.any(weights != 0, axis=1)):
        products = weights[g] * weights[g + 1 :]
        near = np.abs(np.abs(weights[g]) - np.abs(weights[g + 1 :])) < _SAME_WEIGHT * np.abs(weights[g])
        shared, agreeing = np.sum(products != 0, axis=1), np.where(near, np.sign(products), 0.0).sum(axis=1)
        others = np.flatnonzero((np.abs(agreeing) >= _SHARED) & (np.abs(agreeing) >= _AGREEING * shared))
        edges.append(np.stack([np.full(len(others), g), g + 1 + others, np.sign(agreeing[others])]))
    i, j, sign = np.concatenate(edges, axis=1)
    group, orientation = _components(len(found), i.astype(int), j.astype(int), sign)
    return replace(points, group=group[index], jumps=points.jumps * orientation[index, None])


def _components(n, i, j, sign):
    """Connected components (n,) of n items, and orientations (n,) of 1 and -1 that fit the signs of the pairs."""
    graph = coo_matrix((sign, (i, j)), (n, n)).tocsr()
    graph = graph + graph.T
    label, orientation = connected_components(graph, directed=False)[1], np.ones(n)
    for first in np.flatnonzero(np.diff(graph.indptr)):
        if first == np.argmax(label == label[first]):
            order, before = breadth_first_order(graph, first, directed=False)
            for k in order[1:]:
                orientation[k] = orientation[before[k]] * np.sign(graph[before[k], k])
    return label, orientation


def _candidate(known, points):
    """The `_Candidate` of points while the signs are unknown."""
    return _Candidate(points, _equations(known, points.points))


def _signs(probe, known, points, slope, rng):
    """The `LayerSigns` of the first layer, or None, from the units that the points determine best."""
    sizes = np.bincount(points.group)
    groups = [g for g in np.argsort(-sizes)[: 2 * _SEEDS] if sizes[g] > 1]
    candidates = [_candidate(known, points.take(points.group == g)) for g in groups]
    complete = []
    for one in sorted(candidates, key=lambda one: one.free.shape[1])[:_SEEDS]:
        unit = one.as_unit(known)
        if extend_unit(probe, unit, rng) and unit.nullity <= _FEW_DIRECTIONS:
            refine(probe, unit, rng)
            complete.append(unit)
    if len(complete) * known.n_before < known.n_units + 2:
        return None
    solution = layer_signs(known, complete, slope)
    if abs(solution.slope) < _NO_SLOPE:  # as of ReLU units, whose basis must be exact
        solution = layer_signs(known, complete)
    return solution if solution.determined.all() and solution.certain else None


def _add_units(probe, layer, points, rng):
    """Complete the units of groups, the largest first, with further groups that fit, and add them to the layer."""
    known, basis = layer.known, layer.basis
    E = _equations(known, points.points) @ basis
    while len(points):
        check_deadline()
        sizes = np.bincount(points.group)
        if sizes.max() < _FEWEST_POINTS:
            break
        chosen = points.group == np.argmax(sizes)
        one = _Candidate(points.take(chosen), E[chosen])
        points, E = points.take(~chosen), E[~chosen]
        for _ in range(ROUNDS):
            i, sign = _fitting(one, points, E)
            if len(i) == 0:
                break
            orientation = dict(zip(points.group[i], sign, strict=True))
            more = np.isin(points.group, points.group[i])
            new = points.take(more)
            signs = np.array([orientation[g] for g in new.group])
            one.add(replace(new, jumps=new.jumps * signs[:, None]), E[more])
            points, E = points.take(~more), E[~more]
        unit = one.as_unit(known, basis)
        if _is_completed(probe, unit, rng):  # other groups may be of this unit, where it was undetermined before
            layer.units.append(unit)
            one.w, one.free = (lapack.pinv(basis) @ part for part in (unit.coef, unit.null_basis))
            left = ~np.isin(points.group, points.group[_fitting(one, points, E)[0]])
            points, E = points.take(left), E[left]


def _is_completed(probe, unit, rng):
    """Whether a `FacetUnit`, extended and refined, is a unit of the layer."""
    if not extend_unit(probe, unit, rng, n_rounds=_ROUNDS_EXTENDED):
        return False
    refine(probe, unit, rng)
    unit.hit_rate = hit_rate(probe, unit, rng)[0]
    return unit.hit_rate >= ACCEPTED


def _fitting(one, points, E):
    """Indices of points that a `_Candidate` explains with equations to spare, and the signs of their jumps."""
    i = np.flatnonzero(points.convex == one.points.convex[0])
    E, J = E[i], np.column_stack([points.jumps[i] / one.size, np.zeros(len(i))])
    U, s, _ = svd(E @ one.free, full_matrices=False)
    kept = s > NORMAL_RANK_TOL * np.linalg.norm(E, axis=(1, 2))[:, None]
    U, rests = U * kept[:, None], []
    for sign in (1.0, -1.0):
        rest = sign * J - E @ one.w
        rest -= np.einsum("nij,nj->ni", U, np.einsum("nij,ni->nj", U, rest))
        rests.append(np.linalg.norm(rest, axis=1))
    allowed = (_SAME_FAR + _SAME_ERRORS * points.errors[i]) * np.linalg.norm(J, axis=1)
    fits = (np.minimum(*rests) < allowed) & (kept.sum(axis=1) + _SPARE <= J.shape[1])
    return i[fits], np.where(rests[0] < rests[1], 1.0, -1.0)[fits]
