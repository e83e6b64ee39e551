"""The first layer: hyperplanes through positions over long baselines, merged within their standard errors."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline
from skident.linalg import svd

from ...constants import INPUT_ROUNDING, N_FIRST, SAME_PLANE, WINDOW_ERRORS
from ..deep.first_layer import HyperplaneSearch
from ..kernel.locate import locate, window_widths
from ..kernel.windows import locate_by_lines
from .robust import robust_fit

__all__ = ["NoisyHyperplaneSearch", "fit_hyperplane"]

_RADII = (0.5, 1.0, 1.5, 3.0)  # of points on hyperplanes, in standard deviations of the inputs
_FAR_RADII = (1.0, 2.0, 3.0)  # `_RADII` of lines that only confirm hyperplanes
_MOST_PAIRS = 24  # of lines that end the search, one of which only confirms (budget)
_PLANES_PER_PAIR = 12  # hyperplanes per idle pair: 64 behind 13 inputs were complete after four idle ones
_N_MORE = 16  # queried next
_LEAST_FIRST = 2  # of the first ones, that a hyperplane meets
_LEAST_SHARE = 0.3  # of all of them
_PER_INPUT = 2  # positions per input that a fit needs at least, and beyond:
_SPARE = 12  # more
_WINDOWS = 12  # times as many windows at most
_WIDTHS = ((0.01, 0.03), (0.01, 0.03, 0.1))  # half widths of windows of the two rounds, in standard deviations
_UNEXPLAINED = 30.0  # median distance from the fitted hyperplane, in standard deviations: the points are on none
_MERGE_ERRORS = 8.0  # standard errors within which two hyperplanes are one


class NoisyHyperplaneSearch(HyperplaneSearch):
    """A `HyperplaneSearch` on outputs that are not exact; `errors` are the standard errors of its `planes`."""

    def __init__(self, probe, rng):
        super().__init__(probe, rng)
        self.errors = np.zeros(0)

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
        wide, narrow = window_widths(self.probe)
        width, hits = max(narrow, min(wide, WINDOW_ERRORS * error)), 0
        for n, least in ((N_FIRST, _LEAST_FIRST), (_N_MORE, _LEAST_SHARE * (N_FIRST + _N_MORE))):
            P = _points_on(plane, n, self.rng)
            hits += locate(self.probe, P, np.tile(plane[:-1], (n, 1)), width).found.sum()
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

    def has(self, plane, error=0.0):
        """Whether a hyperplane (D + 1,) is one of those detected, within the standard errors of both."""
        return bool(np.any(self._same(plane, error)))

    def _same(self, plane, error):
        apart = [np.linalg.norm(self.planes - sign * plane, axis=1) for sign in (1.0, -1.0)]
        return np.minimum(*apart) < np.maximum(_MERGE_ERRORS * (error + self.errors), SAME_PLANE)


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
