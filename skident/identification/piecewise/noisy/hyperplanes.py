"""The first layer: hyperplanes through positions over long baselines, merged within their standard errors."""

import numpy as np

from skident.budget import check_deadline
from skident.linalg import svd

from ...constants import APART, INPUT_ROUNDING, N_FIRST, SAME_PLANE, WINDOW_ERRORS
from ...measure.outputs import Outputs
from ...measure.record import through
from ...measure.scan import scan
from ..kernel.gradient import normals_at
from ..kernel.lines import CriticalPoints, gaps_on_segments, random_segments
from ..kernel.windows import locate_by_lines
from .robust import robust_fit

_N_NODES = 24  # first pairs of queries on a line
_PAIR_SHARE = 0.3  # `PAIR_SHARE`: errors of the outputs would hide most changes of a slope between closer pairs
_RADII = (0.5, 1.0, 1.5, 3.0)  # of points on hyperplanes, in standard deviations of the inputs
_FAR_RADII = (1.0, 2.0, 3.0)  # `_RADII` of lines that only confirm hyperplanes
_MOST_PAIRS = 24  # of lines that end the search, one of which only confirms (budget)
_PLANES_PER_PAIR = 12  # hyperplanes per idle pair: 64 behind 13 inputs were complete after four idle ones
_WINDOW = (1e-3, 0.03)  # half widths of windows at a hyperplane that is tried, in standard deviations
_N_MORE = 16  # queried next
_LEAST_FIRST = 2  # of the first ones, that a hyperplane meets
_LEAST_SHARE = 0.3  # of all of them
_PER_INPUT = 2  # positions per input that a fit needs at least, and beyond:
_SPARE = 12  # more
_WINDOWS = 12  # times as many windows at most
_WIDTHS = ((0.01, 0.03), (0.01, 0.03, 0.1))  # half widths of windows of the two rounds, in standard deviations
_UNEXPLAINED = 30.0  # median distance from the fitted hyperplane, in standard deviations: the points are on none
_REACH = 6.0  # half length of lines in units of sqrt(D)
_SAME_POINT = 1e-9  # distance of a point from a loose one's hyperplane, over 1 + |x|
_SAME_POINT_ERRORS = 30.0  # `_SAME_POINT` in errors of the normal and resolutions
_ON_PLANE = 1e-7  # distance of points on a hyperplane, over 1 + |x|
_ON_PLANE_RESOLUTIONS = 100.0  # `_ON_PLANE` in resolutions
_MERGE_ERRORS = 8.0  # standard errors within which two hyperplanes are one


def bends_on(probe, segments, rng, n_nodes=_N_NODES):
    """Bends on segments in order: which segment (k,), points (k, D), and free lengths along it (k,)."""
    outputs = Outputs(probe, rng, _PAIR_SHARE)
    bends = scan(outputs, segments, through(outputs, segments, n_nodes))[0]
    bends = bends.take(np.lexsort((bends.t, bends.line)))
    return bends.line, segments.at(bends.line, bends.t), gaps_on_segments(segments, bends.line, bends.t)


class NoisyHyperplaneSearch:
    """Hyperplanes on outputs that are not exact, with their standard errors, and critical points on none of them.

    Attributes: `planes` (K, D + 1), unit normals and offsets, ``x . n + o = 0``; `errors` (K,); `loose`, the
    `CriticalPoints` of hyperplanes met only once, and of deeper units.
    """

    def __init__(self, probe, rng):
        self.probe, self.rng = probe, rng
        D = probe.n_inputs
        self.planes, self.errors = np.zeros((0, D + 1)), np.zeros(0)
        self.loose = CriticalPoints(np.zeros((0, D)), np.zeros((0, D)), np.zeros(0))

    def scan_lines(self, n_lines, *, radii=(1.0,), with_normals=True):
        """Scan random lines for critical points that no hyperplane explains; the number of new hyperplanes.

        Without normals, new points only confirm earlier ones.
        """
        lines = random_segments(self.probe, n_lines, self.rng, reach=_REACH, radii=radii)
        line, points, gaps = bends_on(self.probe, lines, self.rng)
        new = ~self.contains(points)
        line, points, gaps = line[new], points[new], gaps[new]
        found = self._confirm_loose(points)
        if not with_normals:
            return found
        new = ~self.contains(points)
        critical = normals_at(self.probe, points[new], lines.directions[line][new], gaps[new], self.rng)[0]
        return found + self.add_points(critical)

    def add_points(self, critical):
        """Keep more `CriticalPoints`, and add the hyperplanes that two of all points are on; the number of new ones."""
        self.loose = self.loose.joined(critical.take(~self.contains(critical.points)))
        return self._confirm_loose(critical.points) + self._confirm_loose(self.loose.points)

    def _confirm_loose(self, points):
        """Add the hyperplanes of loose points that another of the points (n, D) is on; the number of new ones."""
        found = 0
        while len(self.loose) and len(points):
            n = self.loose.normals
            gap = np.abs(points @ n.T - np.sum(n * self.loose.points, axis=1))
            slack = _SAME_POINT + _SAME_POINT_ERRORS * (self.loose.errors + self.probe.resolution)
            other, loose = np.nonzero(gap < slack * _sizes(points)[:, None])
            apart = np.linalg.norm(points[other] - self.loose.points[loose], axis=1) > APART
            which = np.unique(loose[apart])
            if len(which) == 0:
                break
            i = which[self.loose.errors[which].argmin()]
            point = self.loose.take(np.array([i]))
            self.loose = self.loose.take(np.arange(len(self.loose)) != i)
            found += self.try_point(point)
            if self.probe.oracle.budget.out_of_time:
                break
        return found

    def contains(self, points):
        """Which points (n, D) are on a detected hyperplane: a mask (n,)."""
        if len(self.planes) == 0 or len(points) == 0:
            return np.zeros(len(points), dtype=bool)
        near = max(_ON_PLANE, _ON_PLANE_RESOLUTIONS * self.probe.resolution)
        return np.abs(points @ self.planes[:, :-1].T + self.planes[:, -1]).min(axis=1) < near * _sizes(points)

    def search(self, most_lines=12, patience=2):
        """Scan lines until they have no new hyperplanes: many of them, if there are many hyperplanes.

        Units of the second layer are followed across all hyperplanes: one that is missing costs far more than a line.
        """
        self.scan_lines(2)
        for _ in range(most_lines):
            if not self.scan_lines(1):
                break
        idle = 0
        for _ in range(most_lines):
            idle = 0 if self.scan_lines(1, radii=_FAR_RADII, with_normals=False) else idle + 1
            if idle == patience:
                break
        idle = 0
        for _ in range(_MOST_PAIRS):
            if idle > len(self.planes) // _PLANES_PER_PAIR:
                break
            found = self.scan_lines(1) + self.scan_lines(1, radii=_FAR_RADII, with_normals=False)
            idle = 0 if found else idle + 1

    def try_point(self, critical):
        """Add the hyperplane of one critical point, if the boundary continues along all of it; whether it is new."""
        check_deadline()
        normal, error = critical.normals[0], critical.errors[0]
        plane = np.append(normal, -normal @ critical.points[0])
        return bool(self._continues(plane, error) and self.add_plane(plane))

    def _continues(self, plane, error):
        width, hits = np.clip(WINDOW_ERRORS * error, *_WINDOW), 0
        for n, least in ((N_FIRST, _LEAST_FIRST), (_N_MORE, _LEAST_SHARE * (N_FIRST + _N_MORE))):
            P = _points_on(plane, n, self.rng)
            hits += locate_by_lines(self.probe, P, np.tile(plane[:-1], (n, 1)), width, n_rounds=1).found.sum()
            if hits < least:
                return False
        return True

    def add_plane(self, plane):
        """Add a hyperplane (D + 1,), fitted to positions; whether there is one, and it is new."""
        fit = fit_hyperplane(self.probe, plane, self.rng)
        if fit is None:
            return False
        same = np.flatnonzero(self._same(*fit))
        if len(same) == 0:
            self.planes, self.errors = np.vstack([self.planes, fit[0]]), np.append(self.errors, fit[1])
        elif fit[1] < self.errors[same[0]]:
            self.planes[same[0]], self.errors[same[0]] = fit
        self.loose = self.loose.take(~self.contains(self.loose.points))
        return len(same) == 0

    def drop(self, index):
        """Forget some hyperplanes."""
        self.planes, self.errors = np.delete(self.planes, index, axis=0), np.delete(self.errors, index)

    def _same(self, plane, error):
        apart = [np.linalg.norm(self.planes - sign * plane, axis=1) for sign in (1.0, -1.0)]
        return np.minimum(*apart) < np.maximum(_MERGE_ERRORS * (error + self.errors), SAME_PLANE)


def _sizes(points):
    return 1.0 + np.linalg.norm(points, axis=1)


def _points_on(plane, n, rng):
    P = rng.choice(_RADII, (n, 1)) * rng.standard_normal((n, len(plane) - 1))
    return P - (P @ plane[:-1] + plane[-1])[:, None] * plane[:-1]


def fit_hyperplane(probe, plane, rng):
    """The hyperplane (D + 1,) near a given one through positions on it, and its standard error; None if there is none.

    Windows are queried until enough of them contain the boundary.
    """
    found = None
    for widths in _WIDTHS:
        points, errors = _positions_on(probe, plane, widths, rng)
        if len(points) < len(plane) + 3:
            return found
        tangents = svd(plane[None, :])[2][1:].T
        A = np.column_stack([points, np.ones(len(points))])
        fit = robust_fit(A @ tangents, -(A @ plane), errors)
        if fit.residual > _UNEXPLAINED:
            return found
        plane = plane + tangents @ fit.solution
        plane /= np.linalg.norm(plane[:-1])
        found = plane, float(np.sqrt(np.trace(fit.covariance)) * max(1.0, fit.residual))
    return found


def _positions_on(probe, plane, widths, rng):
    """Positions (n, D) located on a hyperplane, and their standard errors (n,)."""
    D = probe.n_inputs
    need, size = _PER_INPUT * D + _SPARE, (_PER_INPUT + 1) * D + 2 * _SPARE
    points, errors = np.zeros((0, D)), np.zeros(0)
    for n_batches in range(_WINDOWS):
        if len(points) >= need or (n_batches == 3 and len(points) == 0):
            break
        P = _points_on(plane, size, rng)
        there = locate_by_lines(probe, P, np.tile(plane[:-1], (size, 1)), rng.choice(widths, size))
        P = P[there.found] + there.offset[there.found, None] * plane[:-1]
        points = np.vstack([points, P])
        errors = np.append(errors, there.error[there.found] + INPUT_ROUNDING * np.linalg.norm(P, axis=1))
    return points, errors
