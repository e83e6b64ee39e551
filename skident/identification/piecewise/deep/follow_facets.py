"""Following a unit's boundary from facet to facet: one short line beyond every known boundary that it runs into."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import TINY

from ..kernel.lines import Segments, Table
from ..kernel.locate import WINDOW_ERRORS, locate, scan_segments, window_widths
from ..kernel.robust_fit import NOISY
from .facet_unit import CONTRADICTION
from .predictions import hit_rate, refine

__all__ = ["Crossings", "extend_unit", "extend_units", "find_crossings"]


# Moving along the known facets, without queries.
_N_WALKS = 60  # in random directions
_N_STEPS = 12  # known boundaries crossed by a path at most
_REACH = 8.0  # of paths, in units of sqrt(D)
_NO_GRADIENT = 1e-8  # norm of the unit's gradient that is rounding: it is constant on the region
_NO_NORMAL = 1e-9  # `_NO_GRADIENT` for known units
_ON_BOUNDARY = 1e-9  # pre-activation of the boundary that was just crossed
_LEANING = 0.5  # share of the paths that lean toward a boundary across which the unit is undetermined
_SIDEWAYS = 0.4  # random part of their direction, over sqrt(D)

# Choosing crossings.
_AT_ONCE = 8  # boundaries crossed per round
_LEAST_FREE = 1e-3  # free distance behind a boundary, in standard deviations of the inputs
_FAILURE_FACTOR = 0.6  # quality of a crossing per failure at one boundary

# Crossing, in parts of the free distance behind the boundary, which counts up to 1.
_AHEAD = 0.04  # distance of the line from the boundary; close by the unit has few places to be
_AHEAD_NOISY = 0.2  # `_AHEAD` for noisy outputs, whose slopes need longer lines
_HALF_LENGTH = 0.9  # of the line
_BEFORE = 1e-3  # distance before the boundary at which the errors of the unit are evaluated
_LEAST_ALONG = 1e-6  # part of the unit's gradient along the boundary: a line needs a direction across the unit
_STEEPEST_CHANGE = 1e6  # change of a slope at a boundary, over the slope before it
_FAR = 0.6  # distance of the three points that confirm a facet: the farther, the more accurate its slope
_N_POINTS = 3  # of these
_LEAST_HITS = 2  # that must be there
_NARROWEST = 0.005  # half width of their windows
_WIDEST = 0.1  # `_NARROWEST`
_WIDEST_NOISY = 0.2  # `_WIDEST` for noisy outputs
_RESOLUTIONS = 300.0  # resolutions that a window is wide
_POSITION_ERRORS = 3.0  # errors of the position that it is wide
_NEAR_WINDOW = 2e-3  # of a window: how near a point must be to where it was predicted
_NEAR_ERRORS = 4.0  # `_NEAR_WINDOW` in its errors
_NEAR_ERRORS_NOISY = 16.0  # `_NEAR_ERRORS` for noisy outputs
_ACCURATE = 0.05  # error of a point, over the width of its window

# Ending.
_MIN_TESTED = 8  # predicted points tested before a unit is given up
_MAX_TESTED = 16  # after which no more are
_LEAST_HIT_RATE = 0.3  # of these, below which it is none
_ROUGHLY = 0.1  # of a wide window, how near predicted points must be meanwhile
_N_ROUNDS_AGAIN = 12  # of extending units once more
_HASTY = 2  # rounds without progress after which a unit that was never extended is left


def extend_unit(probe, unit, rng, *, n_rounds=40, patience=6, hasty=True):
    """Follow a unit's boundary across known ones until it is determined or nothing is gained; whether it may be a unit.

    Behind a boundary with unit normal o the gradient is ``g + gamma o``: one unknown, which the critical point on a
    short line gives. A line may cross other boundaries: only a point whose facet contains two of three others is taken.
    These are on the unit's boundary to rounding, ``phi . coef = 0``, so errors do not grow from boundary to boundary.
    About 25 queries per boundary, and 40 to 80 to test predicted points. False means a unit of no next layer.
    """
    idle, failures, gained, n_tested, n_hits = 0, Counter(), 0, 0, 0.0
    for _ in range(n_rounds):
        if unit.nullity == 0:
            break
        check_deadline()
        chosen = _best_crossings(find_crossings(unit, rng), failures)
        before = unit.nullity
        failures.update(chosen.boundary)
        for k in _cross(probe, unit, chosen, rng) if len(chosen) else ():
            failures[k] = 0
        progress = before - unit.nullity
        gained += progress
        idle = 0 if progress else idle + 1
        if unit.residual > CONTRADICTION:
            return False
        if progress and n_tested < _MAX_TESTED:
            share, n = hit_rate(probe, unit, rng, 8, near=_ROUGHLY * window_widths(probe)[0])
            n_tested, n_hits = n_tested + n, n_hits + n * share
            if n_tested >= _MIN_TESTED and n_hits < _LEAST_HIT_RATE * n_tested:
                return False
        if idle >= (_HASTY if hasty and gained == 0 else patience):
            break
        if idle == 2:
            unit.start_near_boundaries(rng)
    return True


def extend_units(probe, units, rng):
    """Extend undetermined units again, with more patience; how many directions of their coefficients were gained."""
    gained = 0
    for unit in units:
        before = unit.nullity
        if before:
            extend_unit(probe, unit, rng, n_rounds=_N_ROUNDS_AGAIN, hasty=False)
        if unit.nullity < before:
            refine(probe, unit, rng)
        gained += before - unit.nullity
    return gained


@dataclass(frozen=True)
class Crossings(Table):
    """Where paths along a unit's known facets meet a known boundary behind which the unit is undetermined."""

    points: np.ndarray  # (c, D), on both boundaries
    boundary: np.ndarray  # (c,), index of the known unit
    outward: np.ndarray  # (c, D), unit normals of its boundary, pointing across
    slopes: np.ndarray  # (c, D), gradients of the unit before it
    feature_jumps: np.ndarray  # (c, T), change of the features' slopes along `outward`
    free: np.ndarray  # (c,), distances from other boundaries behind it


def find_crossings(unit, rng):
    """Move along the known facets of a `FacetUnit`, without queries, to boundaries behind which it is undetermined.

    O(paths steps M (D + m_l)) operations.
    """
    known, D = unit.known, unit.known.n_inputs
    x = unit.starts[rng.randint(len(unit.starts), size=_N_WALKS)]
    Z = known.evaluate(x)[0]
    walks, found = _Walks(x, Z, Z > 0, _first_directions(unit, x, Z, Z > 0, rng), np.full(_N_WALKS, -1)), []
    for _ in range(_N_STEPS):
        if len(walks) == 0:
            break
        walks, slopes = _to_next_boundary(unit, walks, _REACH * np.sqrt(D))
        before, rows, k = walks.active, np.arange(len(walks)), walks.last
        beyond = before.copy()
        beyond[rows, k] = ~beyond[rows, k]
        normals = known.boundary_gradients(before, k)
        norms = np.linalg.norm(normals, axis=1)
        normals = normals / np.maximum(norms, TINY)[:, None]
        jumps = known.tangents(beyond, normals)[1] - known.tangents(before, normals)[1]
        size = np.maximum(1.0, np.abs(jumps).max(axis=1, initial=0.0))
        undetermined = np.abs(jumps @ unit.null_basis).max(axis=1, initial=0.0) > unit.tolerance * size
        i = np.flatnonzero(undetermined & (norms > _NO_NORMAL))
        outward = np.where(beyond[rows, k], 1.0, -1.0)[i, None]
        free = _free_distances(known, walks.Z[i], beyond[i], k[i])
        found.append(Crossings(walks.x[i], k[i], outward * normals[i], slopes[i], outward * jumps[i], free))
        walks = _Walks(walks.x, walks.Z, beyond, walks.u, k).take(~undetermined)
    return Crossings.stacked(found)


@dataclass(frozen=True)
class _Walks(Table):
    """Paths along facets."""

    x: np.ndarray  # (n, D), points
    Z: np.ndarray  # (n, M), pre-activations there
    active: np.ndarray  # (n, M), activation patterns
    u: np.ndarray  # (n, D), directions
    last: np.ndarray  # (n,), boundary met last, -1 at the start


def _to_next_boundary(unit, walks, reach):
    """Straight along the facets to the next boundary, for paths that meet one within reach; and the slopes there."""
    g = unit.known.gradients(walks.active, unit.coef)
    size = np.sum(g**2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = walks.u - (np.sum(walks.u * g, axis=1) / size)[:, None] * g
        u /= np.linalg.norm(u, axis=1, keepdims=True)
    dZ = unit.known.tangents(walks.active, np.nan_to_num(u))[0]
    rows, behind = np.arange(len(u)), walks.last >= 0
    alive = (size > _NO_GRADIENT**2) & np.isfinite(u).all(axis=1)
    alive &= ~behind | (dZ[rows, walks.last] * np.where(walks.active[rows, walks.last], 1.0, -1.0) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -walks.Z / dZ
    t[((walks.Z > 0) != walks.active) & (np.abs(walks.Z) < _ON_BOUNDARY)] = np.inf
    t[rows[behind], walks.last[behind]] = np.inf
    t[~(t > 0)] = np.inf
    k = t.argmin(axis=1)
    step = t[rows, k]
    alive &= np.isfinite(step)
    step = np.where(alive, step, 0.0)[:, None]
    x, Z = walks.x + step * np.nan_to_num(u), walks.Z + step * dZ
    Z[rows, k] = 0.0
    alive &= np.linalg.norm(x, axis=1) < reach
    return _Walks(x, Z, walks.active, u, k).take(alive), g[alive]


def _first_directions(unit, x, Z, active, rng):
    """Random directions (n, D), some leaning toward a boundary across which the unit is undetermined."""
    known = unit.known
    u = rng.standard_normal(x.shape)
    units = unit.undetermined_boundaries()
    if len(units) == 0:
        return u
    aim = rng.choice(units, len(x))
    normals = known.boundary_gradients(active, aim)
    norms = np.linalg.norm(normals, axis=1)
    toward = -np.sign(Z[np.arange(len(x)), aim])[:, None] * normals / np.maximum(norms, TINY)[:, None]
    leaning = (rng.uniform(size=len(x)) < _LEANING) & (norms > _NO_NORMAL)
    return np.where(leaning[:, None], _SIDEWAYS * u + np.sqrt(known.n_inputs) * toward, u)


def _free_distances(known, Z, active, k):
    """Distances (n,) of points from all boundaries but the k-th, in the regions behind that."""
    distances = known.distances(Z, active)
    distances[np.arange(len(k)), k] = np.inf
    return distances.min(axis=1)


def _best_crossings(found, failures):
    """The crossing of every boundary with most free distance, those first that did not fail before."""
    D = found.points.shape[1]
    quality = found.free.clip(max=1.0) / (1.0 + np.linalg.norm(found.points, axis=1) / np.sqrt(D))
    quality *= _FAILURE_FACTOR ** np.array([failures[k] for k in found.boundary])
    order = np.argsort(-quality)
    order = order[found.free[order] > _LEAST_FREE]
    first = np.unique(found.boundary[order], return_index=True)[1]
    return found.take(order[np.sort(first)][:_AT_ONCE])


def _cross(probe, unit, crossings, rng):
    """Query behind boundaries and add the points that are confirmed to the unit; the boundaries that were crossed."""
    c, points, gamma = _candidates(probe, unit, crossings, rng)
    if len(c) == 0:
        return []
    free = c.free.clip(max=1.0)
    blur = unit.errors_at(c.points - _BEFORE * free[:, None] * c.outward)[1]
    points, errors = _points_beyond(probe, c, gamma, blur, WINDOW_ERRORS * unit.position_error, rng)
    good = np.flatnonzero(np.isfinite(errors).sum(axis=1) >= _LEAST_HITS)
    good = good[np.sort(np.unique(c.boundary[good], return_index=True)[1])]  # one point per boundary
    if len(good):
        unit.add_points(points[good].reshape(-1, points.shape[2]), errors[good].ravel())
    return list(c.boundary[good])


def _candidates(probe, unit, c, rng):
    """Critical points (n, D) on lines behind boundaries, their crossings, and the gamma (n,) that each would give."""
    free = c.free.clip(max=1.0)
    ahead = free * (_AHEAD if probe.resolution < NOISY else _AHEAD_NOISY)
    along = c.slopes - np.sum(c.slopes * c.outward, axis=1)[:, None] * c.outward
    size = np.linalg.norm(along, axis=1)
    i = np.flatnonzero(size > _LEAST_ALONG * np.linalg.norm(c.slopes, axis=1))
    if len(i) == 0:
        return c.take(i), np.zeros((0, c.points.shape[1])), np.zeros(0)
    c, half = c.take(i), _HALF_LENGTH * free[i]
    lines = Segments(c.points + ahead[i, None] * c.outward, along[i] / size[i, None], -half, half)
    line, t = scan_segments(probe, lines, rng)
    points = lines.at(line, t)
    new = ~unit.known.on_boundaries(points)
    c, points = c.take(line[new]), points[new]
    offset = points - c.points
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gamma = -np.sum(c.slopes * offset, axis=1) / np.sum(c.outward * offset, axis=1)
    moderate = np.abs(gamma) < _STEEPEST_CHANGE * np.linalg.norm(c.slopes, axis=1)
    return c.take(moderate), points[moderate], gamma[moderate]


def _points_beyond(probe, c, gamma, blur, least_width, rng):
    """Points (n, 3, D) of the facets behind boundaries, far from these, and their errors (n, 3): infinite if not there.

    `blur` (n,) is the relative error of the unit's gradient before the boundary.
    """
    n, D = c.points.shape
    free = c.free.clip(max=1.0)
    normals = c.slopes + gamma[:, None] * c.outward
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    away = rng.standard_normal((n, _N_POINTS, D))
    away -= np.sum(away * normals[:, None], axis=2, keepdims=True) * normals[:, None]
    away /= np.linalg.norm(away, axis=2, keepdims=True)
    away = np.where(np.sum(away * c.outward[:, None], axis=2, keepdims=True) < 0, -away, away)
    offset = _FAR * free[:, None, None] * away
    error = 2.0 * blur * free
    width = np.minimum(_WIDEST * free, _RESOLUTIONS * probe.resolution + _POSITION_ERRORS * error)
    width = np.maximum(np.maximum(_NARROWEST * free, width), np.minimum(least_width, _WIDEST_NOISY * free))
    width, error = np.repeat(width, _N_POINTS), np.repeat(error, _N_POINTS)
    predicted = (c.points[:, None] + offset).reshape(-1, D)
    there = locate(probe, predicted, np.repeat(normals, _N_POINTS, axis=0), width)
    distance = np.nan_to_num(there.offset)
    n_errors = _NEAR_ERRORS_NOISY if probe.resolution > NOISY else _NEAR_ERRORS
    hit = there.found & (np.abs(distance) < _NEAR_WINDOW * width + n_errors * there.error + error)
    hit &= there.error < _ACCURATE * width
    points = c.points[:, None] + offset + distance.reshape(n, _N_POINTS, 1) * normals[:, None]
    return points, np.where(hit, there.error, np.inf).reshape(n, _N_POINTS)
