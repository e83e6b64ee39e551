"""Activation boundaries that end: their hyperplanes, collected on lines."""

from dataclasses import dataclass, field

import numpy as np

from skident.oracle import BlackBoxError

from ...constants import SAME
from ..kernel.lines import Line
from ..kernel.scan import scan_line
from ..shallow.units import units_on_line

_REACHES = (30.0, 1e3)  # half lengths of lines, in units of sqrt(D) standard deviations: facets near, and all
_DIRECTION_TOL = 1e-5  # error of a direction above which a boundary is left to another line
_SAME_ERRORS = 20.0  # errors of two directions, or places, within which they are of one hyperplane
_SAME_JUMP = 1e-4  # relative difference of jumps of one hyperplane


@dataclass
class Facets:
    """Hyperplanes ``a . (x, 1) = 0`` on parts of which the gradient jumps, each with the most accurate measurement.

    ``jumps`` (n, D + 1) are a, oriented at random, whose first D entries have the norm of the jump; ``outgoing``
    (n, m_L) is the direction of the jump in the outputs, ``errors`` (n,) that of the unit normal, and ``points`` (n, D)
    lie on the facets.
    """

    n_inputs: int
    n_outputs: int
    jumps: np.ndarray = field(init=False)
    outgoing: np.ndarray = field(init=False)
    errors: np.ndarray = field(init=False)
    points: np.ndarray = field(init=False)

    def __post_init__(self):
        D, m = self.n_inputs, self.n_outputs
        self.jumps, self.outgoing = np.empty((0, D + 1)), np.empty((0, m))
        self.errors, self.points = np.empty(0), np.empty((0, D))

    def __len__(self):
        return len(self.errors)

    def scan(self, probe, n_lines, max_boundaries, rng):
        """Add the boundaries of a line; how many of them are new. `n_lines` lines have been scanned before."""
        direction = rng.standard_normal(self.n_inputs)
        reach = _REACHES[n_lines % len(_REACHES)] * probe.length_scale
        line = Line(rng.standard_normal(self.n_inputs), direction / np.linalg.norm(direction), reach)
        try:
            found = scan_line(
                lambda t: probe.query(line.at(t)),
                line.reach,
                length_scale=probe.length_scale,
                max_boundaries=max_boundaries,
                rng=rng,
            )
        except BlackBoxError:
            return 0
        if not len(found.positions):
            return 0
        units, _ = units_on_line(probe, line, found, np.arange(len(found.positions)), rng)
        accurate = np.flatnonzero(units.errors < _DIRECTION_TOL)
        return sum(self._add(units.take([i]), line.at(found.positions[[i]])[0]) for i in accurate)

    def _add(self, unit, point):
        """Add a unit measured at a point (D,), or keep the better one of it and a known one; whether it is new."""
        size = np.linalg.norm(unit.outgoing)
        jump = size * np.append(unit.weights[:, 0], unit.biases)
        known = self._known(unit, size, point)
        if known is None:
            self.jumps, self.outgoing = np.vstack([self.jumps, jump]), np.vstack([self.outgoing, unit.outgoing / size])
            self.errors, self.points = np.append(self.errors, unit.errors), np.vstack([self.points, point])
            return True
        if unit.errors[0] < self.errors[known]:
            self.jumps[known], self.outgoing[known] = jump, unit.outgoing[0] / size
            self.errors[known], self.points[known] = unit.errors[0], point
        return False

    def _known(self, unit, size, point):
        """The index of the hyperplane that a unit is of, or None."""
        if not len(self):
            return None
        sizes = np.linalg.norm(self.jumps[:, :-1], axis=1)
        normals = self.jumps[:, :-1] / sizes[:, None]
        sides = np.sign(normals @ unit.weights[:, 0])
        apart = np.linalg.norm(sides[:, None] * normals - unit.weights[:, 0], axis=1)
        allowed = SAME + _SAME_ERRORS * (self.errors + unit.errors)
        off = np.abs(normals @ point + self.jumps[:, -1] / sizes)
        there = 1.0 + np.linalg.norm(point) + np.linalg.norm(self.points, axis=1)
        same = (apart < allowed) & (off < allowed * there) & (np.abs(sizes - size) < _SAME_JUMP * size)
        same &= self.outgoing @ unit.outgoing[0] > 0.0
        return int(np.argmin(np.where(same, apart, np.inf))) if same.any() else None
