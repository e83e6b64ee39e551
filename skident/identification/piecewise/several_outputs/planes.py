"""Hyperplanes that several lines confirm, and which critical points they explain."""

from dataclasses import dataclass, field

import numpy as np

from ...constants import EQUAL_JUMP, POSITION_TOL, SAME_NORMAL
from .shared_jacobians import good, normals_on_line

_JUMP_POSITION_TOL = 1e-4  # `POSITION_TOL` if the jumps of the outputs agree as well, which other units' do not
_ERRORS = 0.2  # of the bound of a predicted position's error, up to which it is off: 0.02 of the bound was reached
_DOUBT = 5e-6  # bound above which a position confirms nothing, and below which it is not missed
_LEAST_TOL = 1e-9  # of predicted positions: rounding
_SAME_JUMP = 1e-5  # one minus the cosine of the jumps of one unit of the last hidden layer
_CONFIRMED_BY_JUMPS = 1e-5  # residual of a normal that another line confirms with the jump: those of weak units


@dataclass
class PlaneSearch:
    """Hyperplanes ``normal . x + offset = 0`` in the coordinates of lines.

    Attributes
    ----------
    unit : float
        Length of the lines' coordinates, see `Space`.
    same_jumps : bool
        Whether a unit has the same jump of the outputs everywhere, as in the last hidden layer.
    normals, offsets, errors : ndarray of shape (q, k), (q,), (q,)
        Of the confirmed hyperplanes, with unit normals.
    jumps : ndarray of shape (q, m_L)
        Unit jumps where they were measured.
    sizes : ndarray of shape (q,)
        Lengths of the normals in ``u n^T`` where they were measured.
    candidates : list of tuple
        Not confirmed: normal, offset, error, unit jump and size.
    deeper : list of tuple
        The same of hyperplanes that a line has missed, which those of the first layer do not.
    """

    unit: float
    same_jumps: bool
    n_coordinates: int
    n_outputs: int
    candidates: list = field(default_factory=list)
    deeper: list = field(default_factory=list)

    def __post_init__(self):
        k, p = self.n_coordinates, self.n_outputs
        self.normals, self.offsets, self.errors = np.zeros((0, k)), np.zeros(0), np.zeros(0)
        self.jumps, self.sizes = np.zeros((0, p)), np.zeros(0)

    def __len__(self):
        return len(self.offsets)

    def confirm(self, line):
        """Promote the candidates that predict a critical point of a new line to hyperplanes.

        A unit of the first layer has another jump there, if other deeper units are active. The last hidden layer's
        units have the same everywhere: their boundaries often continue through all of the region near the samples.
        """
        left, missed = [], []
        for candidate in self.candidates:
            normal, offset, error, jump, _ = candidate
            t, error = self._crossing(line, normal, offset, error)
            hit = self._critical_point(line, t, jump, min(error, _DOUBT))
            same = hit is not None and abs(line.units[hit] @ jump) > 1.0 - EQUAL_JUMP
            if hit is not None and (self.same_jumps or not same):
                self._add(candidate)
            elif self.same_jumps or not line.low < t < line.high:  # a boundary may end, and a line as well
                left.append(candidate)
            else:
                missed.append(candidate)
        self.candidates, self.deeper = left, self.deeper + missed

    def demote_missed(self, line):
        """Remove the hyperplanes that a new line shows to be of deeper units; how many there were.

        The hyperplane of a unit of the first layer meets every line.
        """
        missed = []
        for i in range(len(self)):
            t, error = self._crossing(line, self.normals[i], self.offsets[i], self.errors[i])
            if line.low < t < line.high and self._critical_point(line, t, self.jumps[i], max(error, _DOUBT)) is None:
                missed.append(i)
        self.deeper += [
            (self.normals[i], self.offsets[i], self.errors[i], self.jumps[i], self.sizes[i]) for i in missed
        ]
        self.drop(missed)
        return len(missed)

    def explained(self, line):
        """Index of the hyperplane through each critical point of a line, -1 for none."""
        if len(self) == 0 or len(line.positions) == 0:
            return np.full(len(line.positions), -1)
        slope = self.normals @ line.direction
        with np.errstate(divide="ignore"):
            predicted = -(self.offsets + self.normals @ line.origin) / slope
        gap = np.abs(line.positions[:, None] - predicted)
        gap = np.where(np.isfinite(gap), gap, np.inf)
        if self.same_jumps:
            gap = np.where(line.units @ self.jumps.T > 1.0 - _SAME_JUMP, gap, np.inf)
        nearest = gap.argmin(axis=1)
        tol = _JUMP_POSITION_TOL if self.same_jumps else POSITION_TOL
        hit = gap[np.arange(len(gap)), nearest] < tol * self._scale(line, line.positions)
        return np.where(hit, nearest, -1)

    def insert_known(self, line, which):
        """Set the normals of the critical points of a line that hyperplanes explain: size and sign follow from it."""
        index = np.flatnonzero(which >= 0)
        normals = self.normals[which[index]]
        line.normals[index] = normals * (line.sizes[index] / (normals @ line.direction))[:, None]
        line.residuals[index] = 0.0

    def add_candidates(self, line, which):
        """Candidates from the reliable normals of critical points that no hyperplane explains."""
        points, units = line.points, line.units
        reliable = good(line, _CONFIRMED_BY_JUMPS) if self.same_jumps else good(line)
        for i in np.flatnonzero((which < 0) & reliable):
            size = np.linalg.norm(line.normals[i])
            normal = line.normals[i] / size
            self.candidates.append((normal, -normal @ points[i], self._error(line, i), units[i].copy(), size))

    def forget_inaccurate(self, line, which, tol):
        """Mark normals of a line as unknown whose hyperplanes have errors above `tol`; returns which."""
        if len(self) == 0:
            return np.zeros(0, dtype=int)
        inaccurate = self.errors > tol
        index = np.flatnonzero((which >= 0) & inaccurate[which])
        line.normals[index], line.residuals[index] = np.nan, np.inf
        return index

    def improve(self, line, which, index):
        """Replace hyperplanes by those through critical points of a line whose normals were measured again."""
        points, units = line.points, line.units
        for i in index[good(line)[index]]:
            j, size = which[i], np.linalg.norm(line.normals[i])
            normal, point = line.normals[i] / size, points[i]
            sign = np.sign(normal @ self.normals[j])
            error = self._error(line, i)
            if error < self.errors[j] and np.linalg.norm(sign * normal - self.normals[j]) < SAME_NORMAL:
                self.normals[j], self.offsets[j] = sign * normal, -sign * normal @ point
                self.errors[j], self.sizes[j], self.jumps[j] = error, size, units[i]

    def _error(self, line, i):
        """Error of a hyperplane through a critical point: far out, that of the normal moves it by more."""
        return line.errors[i] * max(1.0, np.linalg.norm(line.points[i]) / self.unit)

    def _scale(self, line, t):
        """Distance in units of which positions t of a line have relative errors."""
        return self.unit / np.linalg.norm(line.direction) + np.abs(t)

    def _crossing(self, line, normal, offset, error):
        """Position at which a line crosses a hyperplane, infinite if it does not, and a bound of its relative error."""
        slope = normal @ line.direction
        if slope == 0.0:
            return np.inf, np.inf
        return -(offset + normal @ line.origin) / slope, error / abs(slope)

    def _critical_point(self, line, t, jump, error):
        """Index of the critical point of a line at position t, known to an error, or None; see `same_jumps`."""
        if len(line.positions) == 0 or not np.isfinite(t):
            return None
        gap = np.abs(line.positions - t)
        if self.same_jumps:
            gap = np.where(line.units @ jump > 1.0 - _SAME_JUMP, gap, np.inf)
        nearest, tol = int(np.argmin(gap)), max(_ERRORS * error, _LEAST_TOL)
        tol = _JUMP_POSITION_TOL if self.same_jumps else tol
        return nearest if gap[nearest] < tol * self._scale(line, t) else None

    def _add(self, candidate):
        """Add a hyperplane, or replace the same one if it is more accurate."""
        normal, offset, error, jump, size = candidate
        same = np.flatnonzero(np.abs(self.normals @ normal) > 1.0 - SAME_NORMAL)
        same = [i for i in same if abs(self.offsets[i] - np.sign(self.normals[i] @ normal) * offset) < 1e-2 * self.unit]
        if same:
            i = same[0]
            if error < self.errors[i]:
                self.normals[i], self.offsets[i], self.errors[i] = normal, offset, error
                self.jumps[i], self.sizes[i] = jump, size
            return
        self.normals, self.offsets = np.vstack([self.normals, normal]), np.append(self.offsets, offset)
        self.errors, self.sizes = np.append(self.errors, error), np.append(self.sizes, size)
        self.jumps = np.vstack([self.jumps, jump])

    def drop(self, index):
        """Remove hyperplanes."""
        for name in ("normals", "offsets", "errors", "jumps", "sizes"):
            setattr(self, name, np.delete(getattr(self, name), index, axis=0))


def measure_again(space, search, line, which, again, rng):
    """Determine the unknown normals of a line, and improve hyperplanes by those that were measured again."""
    normals_on_line(space, line, rng)
    search.improve(line, which, again)
