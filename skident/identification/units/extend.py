"""Extend a unit across boundaries of known units behind which it is not determined."""

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import TINY

from ..constants import NO_GRADIENT
from ..measure.outputs import SIGNIFICANCE
from ..measure.scan import scan
from ..piecewise.kernel.lines import Segments

_N_PATHS = 8  # followed at a time (cost)
_ROUNDS = 5  # of these for one set of crossings (budget)
_AT_ONCE = 8  # boundaries crossed at a time, each in another direction
_MOST_STEPS = 12  # linear regions that a path passes (budget)
_IDLE = 4  # sets of crossings that determine nothing, after which a unit is left (budget)
_AIMED = 0.8  # share of the paths that head for a boundary across which the unit is undetermined
_SIDEWAYS = 0.3  # random part of their directions
_FARTHEST = 10.0  # distance of a path from the center, in units of sqrt(D) or that of its start
_TOO_SHORT = 1e-4  # free length at a boundary that is too short to be crossed
_WIDEST = 1.0  # free length used at most, in standard deviations of the inputs
_AHEAD = 0.04  # distance of the short scan behind the boundary over the free length
_HALF = 0.9  # half length of that scan over the free length
_N_NODES = 7  # of it
_N_TESTS = 3  # places along the new facet at which it must bend
_TEST_STEP = 0.02  # step across it over the distance ahead
_BEND = 2.5  # errors of a second difference
_BESIDE = 0.01  # share of the bend by which a test may be off its facet
_CONTRADICTIONS = 3  # facets that contradict the unit, beyond twice those that agree
_CHANGES = 1e-4  # part of the null space in the features behind a boundary that makes the crossing useful


@dataclass
class _Crossing:
    """A boundary of a known unit next to which the unit is known, and behind which it is not."""

    point: np.ndarray  # (k,)
    unit: int
    normal: np.ndarray  # (k,), of the unit before the boundary
    wall: np.ndarray  # (k,), of the boundary
    outward: np.ndarray  # (k,), of norm 1
    along: np.ndarray  # (k,), direction of the scan behind the boundary
    room: float


def extend(layer, unit, budget):
    """Extend a unit in place until it is determined, `budget` sets of crossings are used, or nothing changes.

    Behind a boundary the normal changes by a multiple of the boundary's: one scan finds the facet there, whose
    position is one equation. Returns False if the facets contradict the unit.
    """
    prefix, outputs = layer.prefix, layer.outputs
    tried, idle, wrong, right = np.zeros(len(prefix.bends)), 0, 0.0, 0
    for _ in range(budget):
        if not unit.nullity or idle >= _IDLE:
            break
        check_deadline()
        found = _crossings(prefix, outputs, unit, tried)
        if not found:
            idle += 1
            continue
        before, used = unit.nullity, set()
        for crossing in found:
            tried[crossing.unit] += 1
        for k, point, t_error, along in _facets(outputs, found):
            if k in used:
                continue
            used.add(k)
            if _agrees(layer, unit, point, t_error, along):
                right, tried[found[k].unit] = right + 1, 0
            else:
                wrong += 1
        wrong += 0.5 * (len(found) - len(used))
        idle = 0 if unit.nullity < before else idle + 1
        if unit.nullity < before and prefix.n_units > outputs.n_inputs:
            hits, missed = layer.sharpened(unit, len(found))
            right, wrong = right + hits, wrong + missed
        if wrong > _CONTRADICTIONS and wrong > 2 * right:
            return False
    return True


def _agrees(layer, unit, point, t_error, along):
    """Whether a unit can pass through a point behind a boundary; then it does."""
    prefix, outputs = layer.prefix, layer.outputs
    phi, trial = prefix.evaluate(point[None])[1], unit.copy()
    if trial.impose(phi, _rank_tol(outputs)) > 10.0 * outputs.loose_tol:
        return False
    unit.coef, unit.V = trial.coef, trial.V
    unit.starts.append(point)
    slope = abs((prefix.tangents(point[None], along[None]) @ unit.coef)[0])
    unit.learn(phi, slope * t_error + np.sqrt(prefix.variances(point[None]) @ unit.coef**2))
    return True


def _rank_tol(outputs):
    return 10.0 * outputs.exact_tol


def _crossings(prefix, outputs, unit, tried):
    """The widest crossing of each of several boundaries; those `tried` in vain (M,) come last."""
    best, K = {}, prefix.n_units
    aims = np.flatnonzero(np.abs(unit.V[:K]).max(axis=1) > 1e-3) + prefix.first
    aims = aims[prefix.bends[aims]]
    n = min(_AT_ONCE, len(aims))
    for _ in range(_ROUNDS):
        if len(best) >= n:
            break
        for found in _paths(prefix, outputs, unit, aims):
            far = 1.0 + np.linalg.norm(found.point) / outputs.length
            quality = found.room / far * 0.5 ** tried[found.unit]
            if found.unit not in best or quality > best[found.unit][0]:
                best[found.unit] = quality, found
    return [found for _, found in sorted(best.values(), key=lambda pair: -pair[0])[:n]]


def _paths(prefix, outputs, unit, aims):
    """Follow the unit's boundary from some of its points, through linear regions, to `_Crossing`s."""
    rng, n, found = outputs.rng, _N_PATHS, []
    x = np.array(unit.starts)[rng.randint(len(unit.starts), size=n)]
    pattern, last = prefix.evaluate(x)[0] > 0, np.full(n, -1)
    farthest = _FARTHEST * np.maximum(outputs.length, np.linalg.norm(x, axis=1))
    cell = prefix.cell(pattern)
    u = _headings(cell, x, aims, rng, outputs.length)
    for _ in range(_MOST_STEPS):
        x, k, g, on = _next_boundary(prefix, cell, x, u, unit.coef, pattern, last)
        keep = on & (np.linalg.norm(x, axis=1) <= farthest)
        x, u, k, g, pattern, farthest = x[keep], u[keep], k[keep], g[keep], pattern[keep], farthest[keep]
        if len(x) == 0:
            break
        pattern[np.arange(len(x)), k] ^= True
        cell, last = prefix.cell(pattern), k
        change = np.abs(cell.P @ unit.V).max(axis=(1, 2), initial=0.0) > _CHANGES * np.abs(cell.P).max(axis=(1, 2))
        for i in np.flatnonzero(change):
            crossing = _crossing(prefix, x[i], k[i], g[i], pattern[i, k[i]], cell.J[i], cell.a[i])
            found.extend([crossing] if crossing is not None else [])
        x, u, last, pattern, farthest = x[~change], u[~change], k[~change], pattern[~change], farthest[~change]
        cell = cell.take(~change)
    return found


def _next_boundary(prefix, cell, x, u, coef, pattern, last):
    """Boundaries that paths from x (n, k) along u (in place) meet next: points, units, normals, and a mask: if any."""
    g, rows = cell.P @ coef, np.arange(len(x))
    size = np.linalg.norm(g, axis=1)
    on = size >= NO_GRADIENT * np.linalg.norm(coef)
    u -= ((u * g).sum(axis=1) / np.maximum(size, TINY) ** 2)[:, None] * g
    u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), TINY)
    z, dz = (x[:, None] @ cell.J)[:, 0] + cell.a, (u[:, None] @ cell.J)[:, 0]
    on &= (last < 0) | (dz[rows, last] * np.where(pattern[rows, last], 1.0, -1.0) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -z / dz
    t[~(t > 0) | ~np.isfinite(t) | ~prefix.bends] = np.inf
    t[rows[last >= 0], last[last >= 0]] = np.inf
    k = t.argmin(axis=1)
    on &= np.isfinite(t[rows, k])
    return x + np.where(on, t[rows, k], 0.0)[:, None] * u, k, g, on


def _headings(cell, x, aims, rng, length):
    """Random directions (n, k), most of them toward the boundary of a known unit among `aims`."""
    u = rng.standard_normal(x.shape)
    if len(aims):
        rows, aim = np.arange(len(x)), rng.choice(aims, len(x))
        w = cell.J[rows, :, aim]
        size, z = np.linalg.norm(w, axis=1, keepdims=True), (x * w).sum(axis=1) + cell.a[rows, aim]
        toward = -np.sign(z)[:, None] * w / np.maximum(size, TINY) * length
        aimed = (rng.uniform(size=len(x)) < _AIMED) & (size[:, 0] > 0)
        u[aimed] = _SIDEWAYS * u[aimed] + toward[aimed]
    return u


def _crossing(prefix, x, k, g, is_active, J, a):
    """The `_Crossing` at x into a region with J and a of its `Cell`, or None if the free length is too short."""
    wall, size = J[:, k], np.linalg.norm(J, axis=0)
    size[k] = 0.0
    some = (size > NO_GRADIENT) & prefix.bends
    room = min(np.min(np.abs(x @ J + a)[some] / size[some], initial=np.inf), _WIDEST)
    unit_wall = wall / np.linalg.norm(wall)
    along = g - (g @ unit_wall) * unit_wall
    if room < _TOO_SHORT or np.linalg.norm(along) < _TOO_SHORT * np.linalg.norm(g):
        return None
    outward = unit_wall if is_active else -unit_wall
    return _Crossing(x, int(k), g, wall, outward, along / np.linalg.norm(along), room)


def _facets(outputs, crossings):
    """Facets behind boundaries: which crossing, a point, the error of its position and the direction of that."""
    room = np.array([c.room for c in crossings])
    origins = np.array([c.point + _AHEAD * c.room * c.outward for c in crossings])
    lines = Segments(origins, np.array([c.along for c in crossings]), -_HALF * room, _HALF * room)
    bends = scan(outputs, lines, np.linspace(-1.0, 1.0, _N_NODES) * _HALF * room[:, None])[0]
    if len(bends) == 0:
        return []
    points, places, normals = lines.at(bends.line, bends.t), [], []
    for k, y in zip(bends.line, points, strict=True):
        c = crossings[k]
        n = c.normal - (c.normal @ (y - c.point)) / (c.wall @ (y - c.point)) * c.wall
        n /= np.linalg.norm(n)
        v = outputs.rng.standard_normal((_N_TESTS, len(y)))
        v -= np.outer(v @ n, n)
        v *= (np.sign(v @ c.outward) / np.linalg.norm(v, axis=1))[:, None]
        places.append(y + 0.5 * _AHEAD * c.room * v)
        normals.append(np.tile(n, (_N_TESTS, 1)))
    steps = np.repeat(_TEST_STEP * _AHEAD * room[bends.line], _N_TESTS)
    there = _bends_at(outputs, np.concatenate(places), np.concatenate(normals), steps).reshape(-1, _N_TESTS)
    good = np.flatnonzero(there.sum(axis=1) > _N_TESTS // 2)
    return [(int(bends.line[j]), points[j], bends.t_error[j], lines.directions[bends.line[j]]) for j in good]


def _bends_at(outputs, points, normals, steps):
    """Whether the outputs bend exactly at points (n, k) along normals, and are straight on both sides."""
    offsets = np.arange(-2.0, 3.0) * steps[:, None]
    F, error = outputs.block(points[:, None] + offsets[:, :, None] * normals[:, None])
    second = np.abs(F[:, 2:] - 2.0 * F[:, 1:-1] + F[:, :-2]).max(axis=2)
    tol = SIGNIFICANCE * _BEND * error.max(axis=1)
    beside = np.maximum(second[:, 0], second[:, 2]) <= np.maximum(tol, _BESIDE * second[:, 1])
    return beside & (second[:, 1] > tol)
