"""The first layer: hyperplanes along which the outputs bend wherever they are crossed."""

from __future__ import annotations

import numpy as np

from ...constants import APART, N_FIRST, WINDOW_ERRORS
from ..kernel.gradient import normals_at
from ..kernel.lines import CriticalPoints, gaps_on_segments, random_segments
from ..kernel.locate import locate, scan_segments, window_widths
from ..kernel.robust_fit import NOISY, fit_plane_near

__all__ = ["HyperplaneSearch", "refined_hyperplane"]

_RADII = (0.7, 1.5, 3.0)  # of points on hyperplanes, in standard deviations of the inputs
_SPARE_POINTS = 4  # located beyond the unknowns
_POINTS_NOISY = 3  # located per unknown on noisy outputs, and beyond:
_SPARE_POINTS_NOISY = 12  # more, of which a quarter may belong to other boundaries
_QUERIES = 6  # points queried per point that is needed, and beyond:
_MORE_QUERIES = 24  # more, for few inputs
_EXACT_NORMAL = 1e-9  # error of a normal that no second round improves
_OFF_PLANE = 1e-7  # median distance of points that are on no plane; on one they are exact to 1e-12
_OFF_PLANE_RESOLUTIONS = 1e3  # `_OFF_PLANE` in resolutions
_EVERYWHERE = 0.4  # share of points at which a boundary shows above which it is no facet of a deeper unit
_SUPPORT = 0.5  # least share of the other hyperplanes on both sides of which it shows
_N_SUPPORT = 40  # points of a hyperplane at which that is tested
_SIDE = 5  # divisor of these: points on one side of another hyperplane that say something of it
_SUPPORT_ERRORS = 10.0  # errors of the position, and resolutions, within which a boundary is this one
_SAME_POINT = 1e-9  # distance of a point from a loose one's hyperplane, over 1 + |x|
_SAME_POINT_ERRORS = 30.0  # `_SAME_POINT` in errors of the normal and resolutions
_SAME_PLANE = 1e-5  # difference of normals and offsets of one hyperplane
_ON_PLANE = 1e-7  # distance of points on a hyperplane, over 1 + |x|
_ON_PLANE_RESOLUTIONS = 100.0  # `_ON_PLANE` for both, in resolutions


class HyperplaneSearch:
    """Hyperplanes detected so far, and critical points on none of them.

    Attributes: `planes` (K, D + 1), unit normals and offsets, ``x . n + o = 0``; `loose`, the `CriticalPoints` of
    hyperplanes met only once, and of deeper units, on `n_lines` lines.
    """

    def __init__(self, probe, rng):
        self.probe, self.rng = probe, rng
        D = probe.n_inputs
        self.planes, self.n_lines = np.zeros((0, D + 1)), 0
        self.loose = CriticalPoints(np.zeros((0, D)), np.zeros((0, D)), np.zeros(0))

    def scan_lines(self, n_lines, *, reach=6.0, radii=(1.0,), n_intervals=24, with_normals=True):
        """Scan random lines for critical points that no hyperplane explains; the number of new hyperplanes.

        See `random_segments` and `scan_segments`. Without normals, new points only confirm earlier ones.
        """
        lines = random_segments(self.probe, n_lines, self.rng, reach=reach, radii=radii)
        line, t = scan_segments(self.probe, lines, self.rng, n_intervals=n_intervals)
        points, gaps = lines.at(line, t), gaps_on_segments(lines, line, t)
        new = ~self.contains(points)
        line, points, gaps = line[new], points[new], gaps[new]
        found = self._confirm_loose(points)
        if not with_normals:
            return found
        self.n_lines += n_lines
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

    def try_point(self, critical):
        """Add the hyperplane of one critical point, if the boundary continues along all of it; whether it is new."""
        fit = refined_hyperplane(self.probe, critical.points[0], critical.normals[0], critical.errors[0], self.rng)
        if fit is None or self.has(fit[0]):
            return False
        plane, share = fit
        others = np.vstack([self.planes, plane])
        if share < _EVERYWHERE and _crossing_support(self.probe, others, len(self.planes), self.rng) < _SUPPORT:
            return False
        return self.add_plane(plane)

    def add_plane(self, plane):
        """Add a hyperplane (D + 1,); whether it is new."""
        if self.has(plane):
            return False
        self.planes = np.vstack([self.planes, plane])
        self.loose = self.loose.take(~self.contains(self.loose.points))
        return True

    def has(self, plane):
        """Whether a hyperplane (D + 1,) is one of those detected."""
        if len(self.planes) == 0:
            return False
        near = max(_SAME_PLANE, _ON_PLANE_RESOLUTIONS * self.probe.resolution)
        return min(np.abs(self.planes - sign * plane).max(axis=1).min() for sign in (1.0, -1.0)) < near

    def contains(self, points):
        """Which points (n, D) are on a detected hyperplane: a mask (n,)."""
        if len(self.planes) == 0 or len(points) == 0:
            return np.zeros(len(points), dtype=bool)
        near = max(_ON_PLANE, _ON_PLANE_RESOLUTIONS * self.probe.resolution)
        return np.abs(points @ self.planes[:, :-1].T + self.planes[:, -1]).min(axis=1) < near * _sizes(points)


def _sizes(points):
    return 1.0 + np.linalg.norm(points, axis=1)


def _points_on(probe, normal, offset, count, rng):
    """Random points (n, D) of a hyperplane that may be queried."""
    P = rng.choice(_RADII, (count, 1)) * rng.standard_normal((count, len(normal)))
    P = P - (P @ normal + offset)[:, None] * normal
    return P[probe.inside(P)]


def refined_hyperplane(probe, point, normal, error, rng):
    """The hyperplane (D + 1,) of a critical point from many located on it, and the share of those queried that are.

    `error` is that of the normal. None if the boundary does not continue along the hyperplane. Exact outputs: a second
    round with narrower windows. Noisy ones: more points, once.
    """
    D, (wide, narrow), noisy = len(normal), window_widths(probe), probe.resolution > NOISY
    need = _POINTS_NOISY * D + _SPARE_POINTS_NOISY if noisy else D + _SPARE_POINTS
    offset, first = -normal @ point, max(narrow, min(wide, WINDOW_ERRORS * error))
    for width in (first,) if error < _EXACT_NORMAL or noisy else (first, narrow):
        points, errors, n_queried = _located_on(probe, normal, offset, need, width, rng)
        if len(points) < need:
            return None
        fit = fit_plane_near(points, errors, normal, offset)
        if fit is None or fit.residual * np.median(errors) > _off_plane(probe, points):
            return None
        normal, offset = fit.normal, fit.offset
    return np.append(normal, offset), fit.kept.sum() / n_queried


def _off_plane(probe, points):
    """Median distance of points that are on no plane."""
    size = np.median(_sizes(points))
    return max(_OFF_PLANE, _OFF_PLANE_RESOLUTIONS * probe.resolution) * size


def _located_on(probe, normal, offset, need, width, rng):
    """Up to `need` points (n, D) or more located on a hyperplane, their errors (n,), and how many were queried."""
    points, errors, n_queried = np.zeros((0, len(normal))), np.zeros(0), 0
    while len(points) < need and n_queried < _QUERIES * need + _MORE_QUERIES:
        P = _points_on(probe, normal, offset, N_FIRST if n_queried == 0 else need, rng)
        n_queried += max(len(P), 1)
        there = locate(probe, P, np.tile(normal, (len(P), 1)), width)
        points = np.vstack([points, P[there.found] + there.offset[there.found, None] * normal])
        errors = np.concatenate([errors, there.error[there.found]])
        if len(points) == 0 and n_queried >= 2 * N_FIRST:
            break
    return points, errors, n_queried


def _crossing_support(probe, planes, k, rng):
    """Of the other hyperplanes that the k-th one crosses, the share on both sides of which its boundary shows."""
    normal, offset = planes[k, :-1], planes[k, -1]
    P = _points_on(probe, normal, offset, _N_SUPPORT, rng)
    if len(P) < _N_SUPPORT // 4:
        return 1.0
    there = locate(probe, P, np.tile(normal, (len(P), 1)), window_widths(probe)[1])
    hit = there.found
    if probe.resolution > NOISY:
        hit &= np.abs(np.nan_to_num(there.offset)) < _SUPPORT_ERRORS * (there.error + probe.resolution * _sizes(P))
    side = np.delete(P @ planes[:, :-1].T + planes[:, -1], k, axis=1) > 0
    enough = (side.sum(axis=0) > _N_SUPPORT // _SIDE) & ((~side).sum(axis=0) > _N_SUPPORT // _SIDE)
    both = np.any(side & hit[:, None], axis=0) & np.any(~side & hit[:, None], axis=0)
    return float(both[enough].mean()) if enough.any() else 1.0
