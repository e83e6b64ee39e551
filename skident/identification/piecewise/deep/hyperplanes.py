"""The first layer: hyperplanes along which the probe bend wherever they are crossed."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline

from ..kernel.gradient import normals_at
from ..kernel.lines import CriticalPoints, Segments, gaps_on_segments
from ..kernel.locate import locate, scan_segments, window_widths
from ..kernel.robust_fit import NOISY, active_set_fit

__all__ = ["FirstLayerSearch", "random_segments", "refined_hyperplane"]

_RADII = (0.7, 1.5, 3.0)  # of points on hyperplanes, in standard deviations
_TRIED = 8  # points of a hyperplane at which its kink is looked for
_ON_MOST = 0.4  # share of points at which a kink shows above which the hyperplane is no facet of a deeper unit
_SIDES = 0.5  # least share of the other hyperplanes on both sides of which it shows


def random_segments(probe, n, rng, *, reach, radii=(1.0,)):
    """Lines in random directions through random points near the centre, as long as may be asked.

    Parameters
    ----------
    probe : DeepProbe
    n : int
    rng : numpy.random.RandomState
    reach : float
        Half length in units of ``sqrt(D)``.
    radii : tuple of float, default=(1.0,)
        Spreads of the points.

    Returns
    -------
    Segments
    """
    D = probe.n_inputs
    origins = rng.choice(radii, (n, 1)) * rng.standard_normal((n, D))
    V = rng.standard_normal((n, D))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    high = np.full(n, reach * np.sqrt(D))
    low = -high
    oracle = probe.oracle
    if oracle.input_range is not None:
        origins = oracle.clip_to_range(origins)
        bounds = np.stack([oracle.from_inputs(bound) for bound in oracle.input_range])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (bounds[:, None] - origins) / V
        # An input that the line does not change, at its bound, does not end it.
        t = np.where(np.isnan(t), np.array([-np.inf, np.inf])[:, None, None], t)
        high = np.minimum(high, t.max(axis=0).min(axis=1) * (1.0 - 1e-12))
        low = np.maximum(low, t.min(axis=0).max(axis=1) * (1.0 - 1e-12))
    return Segments(origins, V, low, high)


class FirstLayerSearch:
    """Hyperplanes found so far, and kinks that lie on none of them.

    Parameters
    ----------
    probe : DeepProbe
    rng : numpy.random.RandomState

    Attributes
    ----------
    planes : ndarray of shape (K, D + 1)
        Unit normals and offsets: ``x . n + o = 0``.
    loose : CriticalPoints
        Other kinks: of hyperplanes met only once, and of deeper units.
    """

    def __init__(self, probe, rng):
        self.probe, self.rng = probe, rng
        D = probe.n_inputs
        self.planes = np.zeros((0, D + 1))
        self.loose = CriticalPoints(np.zeros((0, D)), np.zeros((0, D)), np.zeros(0))

    def follow_lines(self, n_lines, *, reach=6.0, radii=(1.0,), n_intervals=24, with_normals=True):
        """Look at random lines for kinks that no hyperplane explains yet.

        Parameters
        ----------
        n_lines : int
        reach : float, default=6.0
            Half length of the lines in units of ``sqrt(D)``.
        radii : tuple of float, default=(1.0,)
            Spreads of the points that they go through.
        n_intervals : int, default=24
            Parts of a line at first.
        with_normals : bool, default=True
            Whether normals of new kinks are asked for; without, positions only serve to confirm earlier ones.

        Returns
        -------
        int
            Hyperplanes that were new.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        lines = random_segments(self.probe, n_lines, self.rng, reach=reach, radii=radii)
        line, t = scan_segments(self.probe, lines, self.rng, n_intervals=n_intervals)
        points = lines.at(line, t)
        rooms = gaps_on_segments(lines, line, t)
        new = ~self.on_planes(points)
        line, points, rooms = line[new], points[new], rooms[new]
        found = self._promote(points)
        if not with_normals:
            return found
        fresh = ~self.on_planes(points)
        V = lines.directions[line]
        kinks = normals_at(self.probe, points[fresh], V[fresh], rooms[fresh], self.rng)[0]
        return found + self.absorb(kinks)

    def absorb(self, kinks):
        """Keep more kinks, and take up the hyperplanes that two of all kinks lie on.

        Parameters
        ----------
        kinks : CriticalPoints

        Returns
        -------
        int
            Hyperplanes that were new.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        self.loose = self.loose.joined(kinks.take(~self.on_planes(kinks.points)))
        return self._promote(kinks.points) + self._promote(self.loose.points)

    def _promote(self, points):
        """Take loose kinks whose hyperplane another kink lies on as units; how many there were."""
        found = 0
        while len(self.loose) and len(points):
            n = self.loose.normals
            gap = np.abs(points @ n.T - np.sum(n * self.loose.points, axis=1))
            slack = (1e-9 + 30.0 * (self.loose.errors + self.probe.resolution)) * _sizes(points)[:, None]
            other, kink = np.nonzero(gap < slack)
            apart = np.linalg.norm(points[other] - self.loose.points[kink], axis=1) > 1e-3
            which = np.unique(kink[apart])
            if len(which) == 0:
                break
            i = which[self.loose.errors[which].argmin()]
            kink = self.loose.take(np.array([i]))
            self.loose = self.loose.take(np.arange(len(self.loose)) != i)
            found += self.try_kink(kink)
            if self.probe.oracle.clock.out_of_time:
                break
        return found

    def try_kink(self, kink):
        """Take up the hyperplane of a kink, if the kink goes on along all of it.

        Parameters
        ----------
        kink : CriticalPoints
            Of one.

        Returns
        -------
        bool

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        plane, share = refined_hyperplane(self.probe, kink.points[0], kink.normals[0], kink.errors[0], self.rng)
        if plane is None or self.has(plane):
            return False
        others = np.vstack([self.planes, plane])
        if share < _ON_MOST and _share_of_sides(self.probe, others, len(self.planes), self.rng) < _SIDES:
            return False
        return self.take_up(plane)

    def take_up(self, plane):
        """Take up a hyperplane, if it is new.

        Parameters
        ----------
        plane : ndarray of shape (D + 1,)

        Returns
        -------
        bool
        """
        if self.has(plane):
            return False
        self.planes = np.vstack([self.planes, plane])
        self.loose = self.loose.take(~self.on_planes(self.loose.points))
        return True

    def has(self, plane):
        """Whether a hyperplane is one of those found.

        Parameters
        ----------
        plane : ndarray of shape (D + 1,)

        Returns
        -------
        bool
        """
        if len(self.planes) == 0:
            return False
        near = max(1e-5, 100.0 * self.probe.resolution)
        gaps = [np.abs(self.planes - s * plane).max(axis=1).min() for s in (1.0, -1.0)]
        return min(gaps) < near

    def on_planes(self, points):
        """Which points lie on a hyperplane found.

        Parameters
        ----------
        points : ndarray of shape (n, D)

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if len(self.planes) == 0 or len(points) == 0:
            return np.zeros(len(points), dtype=bool)
        near = max(1e-7, 100.0 * self.probe.resolution)
        return np.abs(points @ self.planes[:, :-1].T + self.planes[:, -1]).min(axis=1) < near * _sizes(points)


def _sizes(points):
    return 1.0 + np.linalg.norm(points, axis=1)


def _on_plane(probe, n, o, count, rng):
    """Random points of a hyperplane that may be asked."""
    P = rng.choice(_RADII, (count, 1)) * rng.standard_normal((count, len(n)))
    P = P - (P @ n + o)[:, None] * n
    return P[probe.inside(P)]


def refined_hyperplane(probe, point, normal, error, rng):
    """The hyperplane of a kink from the positions of many kinks on it.

    Parameters
    ----------
    probe : DeepProbe
    point, normal : ndarray of shape (D,)
    error : float
        Accuracy of the normal.
    rng : numpy.random.RandomState

    Returns
    -------
    plane : ndarray of shape (D + 1,) or None
        None where the kink does not go on.
    share : float
        Of the points looked at, those at which it shows.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    D, (wide, narrow), noisy = len(normal), window_widths(probe), probe.resolution > NOISY
    n, o, need = normal, -normal @ point, 3 * D + 12 if noisy else D + 4
    width = max(narrow, min(wide, 300.0 * error))
    for _ in range(2):
        points, errors, asked = np.zeros((0, D)), np.zeros(0), 0
        while len(points) < need and asked < 6 * need + 24:
            P = _on_plane(probe, n, o, _TRIED if asked == 0 else need, rng)
            asked += max(len(P), 1)
            there = locate(probe, P, np.tile(n, (len(P), 1)), width)
            points = np.vstack([points, P[there.found] + there.offset[there.found, None] * n])
            errors = np.concatenate([errors, there.error[there.found]])
            if len(points) == 0 and asked >= 2 * _TRIED:
                return None, 0.0
        if len(points) < need:
            return None, len(points) / asked
        if noisy:
            plane, n_found = _weighted_through(points, errors, n, o)
        else:
            plane, n_found = _through(points, errors, probe.resolution), len(points)
        if plane is None:
            return None, 0.0
        plane = plane * np.sign(plane[:D] @ n)
        n, o = plane[:D], plane[D]
        if error < 1e-9 or noisy:
            break
        width = narrow
    return np.append(n, o), n_found / asked


def _through(points, errors, resolution):
    """The hyperplane of least squares through points, those left out that do not lie on it."""
    D = points.shape[1]
    A = np.column_stack([points, np.ones(len(points))]) / np.maximum(errors, np.median(errors))[:, None]
    A /= np.linalg.norm(A, axis=1).max()
    for _ in range(5):
        check_deadline()
        scale = np.linalg.norm(A, axis=0)
        v = np.linalg.svd(A / scale, full_matrices=False)[2][-1] / scale
        v /= np.linalg.norm(v[:D])
        misfit = np.abs(A @ v)
        keep = misfit < max(1e-11, 300.0 * resolution, 20.0 * np.median(misfit))
        if keep.all():
            break
        A = A[keep]
        if len(A) < D + 2:
            return None
    return None if np.median(misfit) > max(1e-7, 1e3 * resolution) else v


def _weighted_through(points, errors, n, o):
    """The hyperplane through points that are known with errors, near one that is given, and how many lie on it."""
    A, plane = np.column_stack([points, np.ones(len(points))]), np.append(n, o)
    free = np.linalg.svd(plane[None])[2][1:].T
    fit = active_set_fit(A @ free, -A @ plane, errors)
    if fit is None:
        return None, 0
    plane = plane + free @ fit.solution
    return plane / np.linalg.norm(plane[:-1]), int(fit.kept.sum())


def _share_of_sides(probe, planes, k, rng, n=40):
    """Of the other hyperplanes that one crosses: the share on both sides of which it shows."""
    normal, offset = planes[k, :-1], planes[k, -1]
    P = _on_plane(probe, normal, offset, n, rng)
    if len(P) < n // 4:
        return 1.0
    there = locate(probe, P, np.tile(normal, (len(P), 1)), window_widths(probe)[1])
    hit = there.found
    if probe.resolution > NOISY:
        hit &= np.abs(np.nan_to_num(there.offset)) < 10.0 * there.error + 10.0 * probe.resolution * _sizes(P)
    side = np.delete(P @ planes[:, :-1].T + planes[:, -1], k, axis=1) > 0
    enough = (side.sum(axis=0) > n // 5) & ((~side).sum(axis=0) > n // 5)
    both = np.any(side & hit[:, None], axis=0) & np.any(~side & hit[:, None], axis=0)
    return float(both[enough].mean()) if enough.any() else 1.0
