"""Follow the boundary of a second-layer unit across hyperplanes of the first layer, and learn what each changes."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import OUTLIER

from ...constants import NARROWEST, WIDEST_INPUTS
from ..kernel.lines import Segments
from ..kernel.locate import scan_segments
from ..kernel.windows import DEVIATIONS, locate_by_lines

__all__ = ["first_unit_points", "follow_unit", "refine_unit"]

# Following.
_MOST_CROSSINGS = 60  # per polyline
_ENOUGH_CROSSINGS = 40  # after which a polyline ends, if it has been useful
_FARTHEST = 3.5  # distance from the center, in units of sqrt(D), at which a polyline ends
_AIMED = 3  # of so many polylines, all but one head for a hyperplane that is still unknown
_TOWARD = 0.5  # random part of an aimed direction over the rest
_NEAREST = 3  # critical points that aimed polylines begin at
_ROUNDS_PER_PLANE = 6  # polylines per hyperplane at most
_IDLE = 30  # polylines in a row without progress that end the search
_IDLE_FIRST = 14  # `_IDLE` while fewer than three hyperplanes are known
_FIRST = 3  # hyperplanes known from which a unit is worth more polylines
# Learning one coefficient.
_PARALLEL = 1e-6  # part of a normal in the plane of the polyline that is rounding
_LEAST_JUMP = 400.0  # standard deviations by which the known jump must move the outputs over the segment
_LEAST_SLOPE = 0.1  # part of the gradient along the segment, over that in the plane
_DISTANCES = (0.3, 0.12)  # of the segment beyond the hyperplane, over the free length there
_BALL = 0.9  # part of the free ball, squared, that the segment stays in
_GAP_SHARE = 0.45  # half width of a window over the distance of the next boundary
_JUMP_TOL = 0.08  # relative deviation of a jump from the one known beforehand
_CONFIRMED_TOL = 0.15  # `_JUMP_TOL` of further points in the new region, in smaller windows
_N_CONFIRMING = 4  # of these points
_CONFIRM_REACH = 0.6  # distance of these over that of the next hyperplane
_CONFIRM_FARTHEST = 0.6  # and at most, in standard deviations of the inputs
_CONFIRM_WIDEST = 0.1  # as `NARROWEST`
_CONFIRM_INNER = 0.7  # part of the window in which they lie
_LEAST_GRADIENT = 0.02  # gradient beyond a hyperplane over that before: smaller ones leave no boundary
# Refining.
_PER_UNKNOWN = 2  # predicted points per unknown, and beyond:
_MORE = 40  # more
_SPREADS = (1.0, 2.0, 0.6)  # of the points that lines go through, in standard deviations of the inputs
_LINE = 2.0  # half length of these lines, in units of sqrt(D)
_STEPS = 25  # points of a line
_LINES_PER_POINT = 4  # searched
_BISECTIONS = 40  # 2^-40 of a step
_REFINE_NARROWEST = 3e-4  # half width of windows, in standard deviations of the inputs
_NARROWER = (0.25, 0.07)  # half widths of a second and third try, over the first
_WORTH_RETRY = 300.0  # standard deviations by which the jump must move the outputs over the narrower window
_REFINED_TOL = 0.1  # relative deviation of a jump
_REFINED_ERRORS = 6.0  # and beside it, in errors of the position over the window
_CLEAR = 2e-2  # distance of the next hyperplane from which a point decides whether the unit is right
_TINY = 1e-9  # rate of change that is rounding


def first_unit_points(probe, planes, point, normal, n_tries=9):
    """The `Crossings` of one critical point, in the widest of some windows that has one; None if none has."""
    width = np.clip(0.4 * _free_length(planes, point[None], normal[None])[0], 1e-3, 0.2)
    for _ in range(n_tries):
        there = locate_by_lines(probe, point[None], normal[None], np.array([width]))
        if there.found[0]:
            return there
        width *= 0.5
    return None


def _free_length(planes, X, directions):
    """Distances (n,) of the next hyperplane along directions (n, D)."""
    rate = np.maximum(np.abs(directions @ planes[:, :-1].T), _TINY)
    return np.min(np.abs(X @ planes[:, :-1].T + planes[:, -1]) / rate, axis=1)


def follow_unit(probe, unit, rng):
    """Learn the coefficients of as many hyperplanes as polylines on the unit's boundary reach."""
    idle = 0
    for n in range(_ROUNDS_PER_PLANE * len(unit.offsets)):
        unknown = np.flatnonzero(~unit.known)
        if len(unknown) == 0 or idle > _IDLE or (idle > _IDLE_FIRST and unit.known.sum() < _FIRST):
            return
        check_deadline()
        aim, first = None, rng.randint(len(unit.points))
        if n % _AIMED:
            aim = unknown[rng.randint(len(unknown))]
            distance = np.abs(unit.points @ unit.normals[:, aim] + unit.offsets[aim])
            first = int(rng.choice(np.argsort(distance)[:_NEAREST]))
        idle = 0 if _Polyline(probe, unit, rng, unit.points[first], aim).follow() else idle + 1


class _Polyline:
    """The boundary of a unit in a plane through one of its critical points."""

    def __init__(self, probe, unit, rng, point, aim):
        self.probe, self.unit, self.rng = probe, unit, rng
        g = unit.gradients(point[None])[0]
        self.x = point - unit.values(point[None])[0] / max(g @ g, _TINY) * g
        d = rng.standard_normal(len(point))
        if aim is not None:
            z = point @ unit.normals[:, aim] + unit.offsets[aim]
            d = -np.sign(z) * unit.normals[:, aim] * np.sqrt(len(point)) + _TOWARD * d
        e = g / np.linalg.norm(g)
        d -= (d @ e) * e
        self.direction = d / np.linalg.norm(d)
        self.frame = np.stack([e, self.direction])  # (2, D), orthonormal
        self.side, self.gradient = np.sign(self.x @ unit.normals + unit.offsets), g

    def follow(self):
        """Follow it until it leaves the neighborhood of the center, or a crossing fails; the number of coefficients."""
        unit, learned = self.unit, 0
        for step in range(_MOST_CROSSINGS):
            z, rate = self.x @ unit.normals + unit.offsets, self.direction @ unit.normals
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.where(self.side * rate < 0, np.maximum(-z / rate, 0.0), np.inf)
            i = int(np.argmin(t))
            if not np.isfinite(t[i]):
                break
            crossing = self.x + t[i] * self.direction
            if np.linalg.norm(crossing) > _FARTHEST * np.sqrt(len(crossing)):
                break
            if not unit.known[i]:
                if not self._learn(i, crossing):
                    break
                learned += 1
            if not self._turn(i, crossing) or (learned and step > _ENOUGH_CROSSINGS):
                break
        return learned

    def _turn(self, i, crossing):
        """Go on beyond hyperplane i; whether there is a boundary."""
        unit = self.unit
        self.side[i] = -self.side[i]
        crossed = self.side != unit.side
        self.gradient = unit.gradient_beyond(crossed)
        g = self.frame @ self.gradient
        if np.linalg.norm(g) < _TINY * unit.norm:
            return False
        d = np.array([-g[1], g[0]]) @ self.frame
        d /= np.linalg.norm(d)
        self.direction = d if (d @ unit.normals[:, i]) * self.side[i] > 0 else -d
        features = np.maximum(-unit.side * (crossing @ unit.normals + unit.offsets), 0.0) * crossed
        z = (crossing - unit.point) @ unit.gradient + unit.beta + features @ unit.coef
        self.x = crossing - z / (g @ g) * (g @ self.frame)
        return True

    def _learn(self, i, crossing):
        """Learn the coefficient of hyperplane i beyond a crossing; whether it worked."""
        unit, normal = self.unit, self.frame @ self.unit.normals[:, i]
        size = np.linalg.norm(normal)
        if size < _PARALLEL:
            return False
        normal = -self.side[i] * normal / size
        beyond, along = normal @ self.frame, np.array([-normal[1], normal[0]]) @ self.frame
        in_plane = np.maximum(np.linalg.norm(self.frame @ unit.normals, axis=0), _TINY)
        distance = np.abs(crossing @ unit.normals + unit.offsets) / in_plane
        distance[i] = np.inf
        radius = min(distance.min(), 1.0)
        slope = self.gradient @ along
        too_small = abs(slope) * radius < _LEAST_JUMP / DEVIATIONS
        if too_small or abs(slope) < _LEAST_SLOPE * np.linalg.norm(self.frame @ self.gradient):
            return False
        for y, error in self._matches(crossing, beyond, along, radius, slope):
            state = unit.state()
            feature = unit.features(y[None])[0, i]
            if feature > 0 and self._accept(i, y, error * abs(slope), crossing, -unit.values(y[None])[0] / feature):
                return True
            unit.restore(state)
        return False

    def _matches(self, crossing, beyond, along, radius, slope):
        """Up to two critical points on a segment parallel to the hyperplane whose jump is the known one."""
        for share in _DISTANCES:
            half = np.sqrt(max(_BALL - share**2, 0.0)) * radius
            middle = crossing + share * radius * beyond
            segment = Segments(middle[None], along[None], np.array([-half]), np.array([half]))
            t = scan_segments(self.probe, segment, self.rng)[1]
            if len(t):
                break
        if len(t) == 0:
            return []
        gaps = np.diff(np.concatenate([[-half], t, [half]]))
        width = np.minimum(_GAP_SHARE * np.minimum(gaps[1:], gaps[:-1]), WIDEST_INPUTS)
        at = middle + t[:, None] * along
        there = locate_by_lines(self.probe, at, np.tile(along, (len(t), 1)), width, n_rounds=1)
        deviation = np.linalg.norm(there.jump - self.unit.output * abs(slope), axis=1) / abs(slope)
        good = [k for k in np.argsort(deviation)[:2] if there.found[k] and deviation[k] < _JUMP_TOL]
        return [(at[k] + there.offset[k] * along, there.error[k]) for k in good]

    def _accept(self, i, y, error, crossing, coef):
        """Whether further critical points beyond hyperplane i confirm its coefficient; they are added then."""
        unit, q = self.unit, _N_CONFIRMING
        unit.coef[i], unit.known[i] = coef, True
        g = unit.gradients(y[None])[0]
        length = np.linalg.norm(g)
        if length < _LEAST_GRADIENT * np.linalg.norm(self.gradient):
            return False
        e = g / length
        A = self.rng.standard_normal((q, len(y)))
        A[0] = y - crossing
        A -= (A @ e)[:, None] * e
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        A = np.where((A @ unit.normals[:, i] * -self.side[i] < 0)[:, None], -A, A)
        z = y @ unit.normals + unit.offsets
        rate = A @ unit.normals * np.sign(z)
        free = np.where(rate < 0, np.abs(z) / np.maximum(-rate, _TINY), np.inf).min(axis=1)
        reach = np.minimum(_CONFIRM_REACH * free, _CONFIRM_FARTHEST)
        P, E = y + reach[:, None] * A, np.tile(e, (q, 1))
        width = np.clip(0.5 * _free_length(_planes(unit), P, E), NARROWEST, _CONFIRM_WIDEST)
        width = np.minimum(width, 0.3 * reach)
        there = locate_by_lines(self.probe, P, E, width)
        deviation = np.linalg.norm(there.jump - unit.output * length, axis=1) / length
        good = there.found & (deviation < _CONFIRMED_TOL) & (np.abs(there.offset) < _CONFIRM_INNER * width)
        if not good.any():
            return False
        unit.add_points(
            np.vstack([y, P[good] + there.offset[good, None] * e]), np.append(error / length, there.error[good])
        )
        unit.fit(n_rounds=1)
        return True


def _planes(unit):
    return np.column_stack([unit.normals.T, unit.offsets])


def refine_unit(probe, unit, rng):
    """Fit a unit to predicted critical points far and near; returns the share of them that are there."""
    D = len(unit.point)
    X = _predicted_points(unit, _PER_UNKNOWN * (len(unit.offsets) + D) + _MORE, rng)
    if len(X) < _N_CONFIRMING:
        return 0.0
    G = unit.gradients(X)
    length = np.maximum(np.linalg.norm(G, axis=1), _TINY)
    E = G / length[:, None]
    free = _free_length(_planes(unit), X, E)
    width = np.clip(0.5 * free, _REFINE_NARROWEST, WIDEST_INPUTS)
    there = locate_by_lines(probe, X, E, width)
    for narrower in _NARROWER:
        again = np.flatnonzero(~there.found & (narrower * width * length > _WORTH_RETRY / DEVIATIONS))
        other = locate_by_lines(probe, X[again], E[again], narrower * width[again])
        for old, new in zip(there, other, strict=True):
            old[again[other.found]] = new[other.found]
    deviation = np.linalg.norm(there.jump - length[:, None] * unit.output, axis=1) / length
    fits = there.found & (deviation < _REFINED_TOL + _REFINED_ERRORS * there.error / width)
    clear = free > _CLEAR
    unit.add_points(X[fits] + there.offset[fits, None] * E[fits], there.error[fits])
    unit.discard(unit.fit(), OUTLIER)
    unit.fit()
    return float(fits[clear].mean()) if clear.any() else 0.0


def _predicted_points(unit, n, rng):
    """At most n points (k, D) on the boundary that a unit predicts, on random lines."""
    D = len(unit.point)
    origins = rng.choice(_SPREADS, (_LINES_PER_POINT * n, 1)) * rng.standard_normal((_LINES_PER_POINT * n, D))
    V = rng.standard_normal(origins.shape)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    t = np.linspace(-_LINE, _LINE, _STEPS) * np.sqrt(D)
    Z = unit.values((origins[:, None] + t[:, None] * V[:, None]).reshape(-1, D)).reshape(len(origins), -1)
    line, step = np.nonzero(Z[:, 1:] * Z[:, :-1] < 0)
    some = rng.permutation(len(line))[:n]
    line, step = line[some], step[some]
    low, high, sign = t[step], t[step + 1], np.sign(Z[line, step])
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        left = unit.values(origins[line] + middle[:, None] * V[line]) * sign > 0
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    X = origins[line] + (0.5 * (low + high))[:, None] * V[line]
    return X[unit.is_valid(X)]
