"""Units of the second layer: bends that no hyperplane explains, grouped by the gradients on their two sides."""

import numpy as np

from skident.budget import check_deadline

from ...constants import LINE_REACH
from ..kernel.gradient import normals_at
from ..kernel.lines import CriticalPoints, Segments, random_segments
from .hyperplanes import bends_on
from .unit import Bends, SignFreeUnit, bends_at

_NORMAL_ERROR = 2e-2  # largest error of a gradient that says whose it is
_PREDICTED = 0.01  # error of a gradient that a unit predicts, in place of a measured one
_FEWEST_BENDS = 4  # of a unit
_FLAT = 2e-3  # largest coefficient over the gradient of a unit whose boundary is a hyperplane of the first layer
_FEWEST_PLANES = 4  # that such a unit must have crossed
_ON_UNIT = 2e-3  # distance within which a critical point belongs to a unit, in standard deviations of the inputs
_MOST_POINTS = 40  # critical points examined per scan, those with the longest gaps
_RADII = (1.0, 1.0, 2.0)  # spreads of the points that lines go through
_AIMED = 20  # short lines beyond unknown hyperplanes at a time
_NEAREST = 3  # bends that they begin at
_BEYOND = (0.1, 1.0)  # distances beyond the hyperplane, in standard deviations of the inputs
_HALF_LENGTH = 1.0  # of these lines, in standard deviations of the inputs
_AIMED_NODES = 6  # first pairs of these
_AIMED_ROUNDS = 12  # (budget)


class SecondLayerSearch:
    """Units detected so far. `first` is the `NoisyHyperplaneSearch`; new hyperplanes are added to it on the way."""

    def __init__(self, probe, first, rng, callback=None):
        self.probe, self.first, self.rng, self.callback = probe, first, rng, callback
        D, m = probe.n_inputs, probe.n_outputs
        self.units, self.parts = [], []
        self.bends = Bends(np.zeros((0, D)), np.zeros((0, D)), np.zeros((0, m)), np.zeros(0), np.zeros(0))

    def critical_points(self, segments, **options):
        """New `CriticalPoints` on segments; those of known units have their gradients."""
        line, points, gaps = bends_on(self.probe, segments, self.rng, **options)
        known, new = [CriticalPoints(points[:0], points[:0], gaps[:0])], ~self.first.contains(points)
        for unit in self.units:
            i = np.flatnonzero(new & unit.contains(points, _ON_UNIT))
            normals = unit.gradients(points[i])
            normals /= np.linalg.norm(normals, axis=1, keepdims=True)
            known.append(CriticalPoints(points[i], normals, np.full(len(i), _PREDICTED)))
            new[i] = False
        new = np.flatnonzero(new)
        new = new[np.argsort(-gaps[new], kind="stable")[:_MOST_POINTS]]
        measured, _ = normals_at(self.probe, points[new], segments.directions[line[new]], gaps[new], self.rng)
        return measured, CriticalPoints.stacked(known)

    def scan(self, n_lines):
        """Add critical points on random lines, which also confirm hyperplanes; whether there are more units."""
        lines = random_segments(self.probe, n_lines, self.rng, reach=LINE_REACH, radii=_RADII)
        critical, known = self.critical_points(lines)
        self.first.add_points(critical)
        return self.add(critical.joined(known))

    def add(self, critical):
        """Group the bends at further critical points, too; whether there are more units or known coefficients."""
        check_deadline()
        before = self._size()
        bends = bends_at(self.probe, self.first.planes, critical.take(critical.errors < _NORMAL_ERROR))
        bends = bends.take((bends.errors < _NORMAL_ERROR) & ~self.first.contains(bends.points))
        self.bends = self.bends.joined(bends)
        self._group(list(range(len(self.bends) - len(bends), len(self.bends))))
        if self.callback is not None:
            self.callback(len(self.first.planes) + len(self.units))
        return self._size() > before

    def _size(self):
        return len(self.units), sum(int(unit.known.sum()) for unit in self.units)

    def _group(self, new):
        """Give new bends, and those of parts, to units, and start others from the most accurate of the rest."""
        planes, left = self.first.planes, new + [i for part in self.parts for i in part.signs]
        if self.units and len(self.units[0].offsets) < len(planes):
            self._regroup()
            return
        left = sorted(left, key=lambda i: self.bends.errors[i])
        units, self.units, self.parts = self.units, [], []
        for unit in units:
            unit.see(self.bends)
            unit.grow(left)
            left = [i for i in left if i not in unit.signs]
            self._keep(unit)
        while left:
            unit = SignFreeUnit(planes, self.bends, left[0])
            unit.grow(left)
            left = [i for i in left if i not in unit.signs]
            if not self._is_hyperplane(unit):
                self._keep(unit)
        if len(self.first.planes) > len(planes):
            self._regroup()

    def _regroup(self):
        """Group all bends anew, behind the hyperplanes of today."""
        self.bends, self.units, self.parts = self.bends.take(~self.first.contains(self.bends.points)), [], []
        self._group(list(range(len(self.bends))))

    def _keep(self, unit):
        """Keep a unit, as far as it is no part of another one."""
        if not any(other.unite(unit) for other in self.units):
            (self.parts if len(unit.signs) < _FEWEST_BENDS else self.units).append(unit)

    def _is_hyperplane(self, unit):
        """Whether a unit's boundary is a hyperplane of the first layer, which is added then."""
        known, size = unit.known, np.linalg.norm(unit.gradient)
        if known.sum() < _FEWEST_PLANES or np.abs(unit.coef[known]).max() > _FLAT * size:
            return False
        normal = unit.gradient / size
        return self.first.add_plane(np.append(normal, -normal @ unit.point - unit.beta / size))

    def drop_false_planes(self):
        """Forget hyperplanes across which no unit changes; whether there were any."""
        if not self.units:
            return False
        known = np.array([unit.known for unit in self.units])
        size = np.array([np.abs(unit.coef) / np.linalg.norm(unit.gradient) for unit in self.units])
        false = (np.max(size * known, axis=0) < _FLAT) & (known.sum(axis=0) >= _FEWEST_PLANES)
        if false.any():
            self.first.drop(np.flatnonzero(false))
            self._regroup()
        return bool(false.any())

    def complete(self):
        """Scan short lines where coefficients of units are missing, as long as that helps; whether it did."""
        helped = False
        for _ in range(_AIMED_ROUNDS):
            some = [unit for unit in self.units if not unit.known.all()] or self.parts
            if not some:
                break
            lines = [self._aimed(some[i]) for i in self.rng.randint(len(some), size=_AIMED)]
            half = np.full(len(lines), _HALF_LENGTH)
            segments = Segments(*np.swapaxes(lines, 0, 1), -half, half)
            critical, known = self.critical_points(segments, n_nodes=_AIMED_NODES)
            if not self.add(critical.joined(known)):
                break
            helped = True
        return helped

    def _aimed(self, unit):
        """Origin and direction of a line across a unit's boundary beyond a hyperplane that it has not crossed."""
        unknown = np.flatnonzero(~unit.known)
        k = unknown[self.rng.randint(len(unknown))]
        normal, X = unit.normals[:, k], unit.points
        z = X @ normal + unit.offsets[k]
        i = self.rng.choice(np.argsort(np.abs(z))[:_NEAREST])
        g = unit.gradients(X[i][None])[0]
        g = g / np.linalg.norm(g)
        tangent = normal - (normal @ g) * g
        tangent /= max(tangent @ normal, _LEAST_TANGENT)
        away = (z[i] + np.sign(z[i]) * self.rng.uniform(*_BEYOND)) * tangent
        return X[i] - away * min(1.0, _FARTHEST / np.linalg.norm(away)), g


_FARTHEST = 2.0  # of an aimed line from the bend that it begins at, in standard deviations of the inputs
_LEAST_TANGENT = 0.1  # part of a hyperplane's normal along a unit's boundary
