"""Units of the second layer: critical points that no hyperplane explains, and their boundaries followed."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline
from skident.linalg import lapack

from ...constants import LEAST_SHARE, LINE_REACH, N_INTERVALS
from ..kernel.gradient import normals_at
from ..kernel.lines import gaps_on_segments, random_segments
from ..kernel.locate import scan_segments
from .follow import first_unit_points, follow_unit, refine_unit
from .unit import SignFreeUnit

__all__ = ["SecondLayerSearch"]

_NORMAL_ERROR = 2e-2  # largest error of a normal at which a unit's boundary can be followed
_LEAST_NORMAL_ERROR = 1e-6  # of its direction beside the measured one
_FEWEST = 6  # hyperplanes that a unit must cross, or a quarter of them
_SAME_COSINE = 0.9995  # of the coefficients of two parts of one unit
_FEWEST_COMMON = 3  # hyperplanes that both crossed
_PLANE_COEF = 2e-3  # largest coefficient over the gradient of a unit whose boundary is a hyperplane of the first layer
_ON_UNIT = 2e-3  # distance within which a critical point belongs to a unit, in standard deviations of the inputs
_MOST_POINTS = 40  # critical points examined per scan, those with the longest gaps
_RADII = (1.0, 1.0, 2.0)  # spreads of the points that lines go through
_UNITED_SCALE = 0.05  # relative difference of the scales of two parts of one unit
_UNITED_TOL = 5e-3  # residual of what their gradients say about hyperplanes between them, over the gradient
_UNITED_NEAR = 2e-2  # distance of the points of one part from the boundary of the other
_FALSE_COEF = 2e-3  # largest coefficient of all units at a hyperplane that is none
_FEWEST_UNITS = 4  # from which false hyperplanes are dropped
_FEWEST_KNOWN = 3  # units that must have crossed it


class SecondLayerSearch:
    """Units detected so far. `first` is the `NoisyHyperplaneSearch`; new hyperplanes are added to it on the way."""

    def __init__(self, probe, first, rng, callback=None):
        self.probe, self.first, self.rng, self.callback = probe, first, rng, callback
        self.units = []

    def explains(self, X):
        """Which points (n, D) are on a hyperplane or on the boundary of a unit."""
        known = self.first.contains(X)
        for unit in self.units:
            known |= unit.contains(X, _ON_UNIT)
        return known

    def critical_points(self, segments, n_intervals=N_INTERVALS):
        """New `CriticalPoints` on segments."""
        line, t = scan_segments(self.probe, segments, self.rng, n_intervals=n_intervals)
        points, gaps = segments.at(line, t), gaps_on_segments(segments, line, t)
        new = np.flatnonzero(~self.explains(points))
        new = new[np.argsort(-gaps[new], kind="stable")[:_MOST_POINTS]]
        return normals_at(self.probe, points[new], segments.directions[line[new]], gaps[new], self.rng)[0]

    def scan(self, n_lines):
        """Critical points on random lines that nothing explains, which also confirm hyperplanes."""
        lines = random_segments(self.probe, n_lines, self.rng, reach=LINE_REACH, radii=_RADII)
        critical = self.critical_points(lines)
        self.first.add_points(critical)
        self.update_planes()
        return critical

    def update_planes(self):
        """Assign new hyperplanes to units."""
        for unit in self.units:
            unit.with_planes(self.first.planes)

    def add(self, critical):
        """Follow the boundaries of critical points; the number of units and parts of units that are new."""
        new = 0
        for i in np.argsort(critical.errors, kind="stable"):
            check_deadline()
            point = critical.take(np.array([i]))
            if critical.errors[i] < _NORMAL_ERROR and not self.explains(point.points)[0]:
                new += self._add_one(point.points[0], point.normals[0], critical.errors[i])
                if self.callback is not None:
                    self.callback(len(self.first.planes) + len(self.units))
        return new

    def _add_one(self, point, normal, error):
        """Whether the boundary at a critical point gives a new unit, more of a known one, or a hyperplane."""
        unit = self._start(point, normal, error)
        if unit is None:
            return False
        follow_unit(self.probe, unit, self.rng)
        if self._is_hyperplane(unit):
            return True
        if unit.known.sum() < min(_FEWEST, len(unit.offsets) // 4):
            return False
        for other in self.units:
            if _are_same(unit, other):
                return self._unite(other, unit)
        unit.share = refine_unit(self.probe, unit, self.rng)
        if not unit.known.all():
            follow_unit(self.probe, unit, self.rng)
            unit.share = refine_unit(self.probe, unit, self.rng)
        if unit.share < LEAST_SHARE:
            return False
        for other in self.units:
            if _are_same(unit, other):
                return self._unite(other, unit)
        self.units.append(unit)
        return True

    def _start(self, point, normal, error):
        planes = self.first.planes
        there = first_unit_points(self.probe, planes, point, normal)
        if there is None:
            return None
        length = np.linalg.norm(there.jump[0])
        return SignFreeUnit(
            planes,
            point + there.offset[0] * normal,
            length * normal,
            there.jump[0] / length,
            max(3.0 * error, _LEAST_NORMAL_ERROR),
            there.error[0],
        )

    def _is_hyperplane(self, unit):
        """Whether a unit's boundary is a hyperplane of the first layer, which is added then."""
        known, size = unit.known, np.linalg.norm(unit.gradient)
        if known.sum() < _FEWEST_UNITS or np.abs(unit.coef[known]).max() > _PLANE_COEF * size:
            return False
        normal = unit.gradient / size
        if not self.first.add_plane(np.append(normal, -normal @ unit.point - unit.beta / size)):
            return False
        self.update_planes()
        return True

    def _unite(self, unit, part):
        """Add to a unit what another part of its boundary determines; whether that is anything."""
        common, new = unit.known & part.known, part.known & ~unit.known
        between = ~unit.known & ~part.known & (unit.side != part.side)
        if not (new.any() or between.any()) or common.sum() < _FEWEST_COMMON:
            return False
        scale = (unit.coef[common] @ part.coef[common]) / np.sum(part.coef[common] ** 2)
        if abs(abs(scale) - 1.0) > _UNITED_SCALE:
            return False
        unit.coef[new] = scale * part.coef[new]
        unit.known = unit.known | new
        if between.any() and not _solve_between(unit, part, between, scale):
            return False
        near = unit.contains(part.points, _UNITED_NEAR)
        unit.add_points(part.points[near], part.errors[near])
        crossed = np.any(unit.features(unit.points) > 0, axis=0)
        unit.known &= crossed | ~(new | between)
        unit.coef[~unit.known] = 0.0
        unit.fit()
        unit.share = refine_unit(self.probe, unit, self.rng)
        return True

    def complete(self):
        """Follow the boundaries of units that lack coefficients again."""
        for unit in self.units:
            if not unit.known.all():
                before = unit.known.sum()
                follow_unit(self.probe, unit, self.rng)
                if unit.known.sum() > before:
                    unit.share = refine_unit(self.probe, unit, self.rng)

    def drop_false_planes(self):
        """Forget hyperplanes across which no unit changes; whether there were any."""
        if len(self.units) < _FEWEST_UNITS:
            return False
        known = np.array([unit.known for unit in self.units])
        size = np.array([np.abs(unit.coef) / np.linalg.norm(unit.gradient) for unit in self.units])
        false = np.flatnonzero((np.max(size * known, axis=0) < _FALSE_COEF) & (known.sum(axis=0) >= _FEWEST_KNOWN))
        self.first.drop(false)
        for unit in self.units if len(false) else ():
            unit.without_planes(false)
            unit.fit()
        return len(false) > 0


def _are_same(unit, other):
    """Whether two units have the same coefficients, up to a factor."""
    common = unit.known & other.known
    if common.sum() < _FEWEST_COMMON:
        return False
    a, b = unit.coef[common], other.coef[common]
    return abs(a @ b) > _SAME_COSINE * np.linalg.norm(a) * np.linalg.norm(b)


def _solve_between(unit, part, between, scale):
    """Coefficients of hyperplanes between two parts that neither crossed, from the two gradients; whether they fit."""
    if between.sum() > len(unit.point) - 3:
        return False
    target = scale * part.gradient - unit.gradients(part.point[None])[0]
    M = -unit.normals[:, between] * unit.side[between]
    coef = lapack.lstsq(M, target, rcond=None)[0]
    if np.linalg.norm(M @ coef - target) > _UNITED_TOL * np.linalg.norm(unit.gradient):
        return False
    unit.coef[between] = coef
    unit.known = unit.known | between
    return True
