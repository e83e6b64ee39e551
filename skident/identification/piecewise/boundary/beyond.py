"""Beyond a new bend: the facet there, from the plane before the bend."""

import numpy as np

from ...constants import MIN_BEND
from .facets import fine_facet
from .points import bisect, bracket

_BEYOND = (0.05, 0.0125, 3e-3, 7e-4)  # distances beyond a bend up to which the boundary must be flat along the path
_FOLD = 3.0  # radians from the direction of the path, up to which the boundary may turn at a bend
_ALONG_ERROR = 1e-6  # radians, of the direction beyond
_FLAT_TOL = 2e-4  # deviation of the boundary half the way from a straight line, over that distance
_BEND_ERROR = 1e-5  # of the bend's position along the path
_LATE = 2e-9  # of a bend along the normal, relative to 1 + |x|: it shows once labels beside the path are other ones
_CENTER = 0.6  # of that distance, at which the facet's center lies
_RADII = ((0.06, 0.3), (0.012, 0.3), (0.012, 1.0))  # of its points, over that distance, and brackets over the radius
_ERROR = 3e-5  # of its points, over the radius
_INWARD = (0.25, 0.12, 0.06, 0.03, 0.015, 7e-3)  # distances from the bend at which normals are measured
_INWARD_RATIO = 0.8  # radius there, over the distance: the bend must stay outside
_SLACK = 3e-4  # of predicted points of the interior, over their distance from the bend
_FALLBACK = 2e-3  # `_SLACK` over the radius around its own point


def facet_beyond(labels, plane, pair, x, d, rng):
    """The facet beyond the bend at x (D,) of a facet with `plane`, in direction d; None if there is none.

    The plane before the bend and one point beyond replace a coarse normal. A rough normal from a small radius gives
    the direction away from the bend, in which the normal is measured at the largest radius: its errors are inverse to
    it, and units behind this one inherit them.
    """
    n = plane[:-1] / np.linalg.norm(plane[:-1])
    for rho in _BEYOND:
        turn = _turn(labels, x, d, n, rho, pair)
        if turn is None:
            continue
        if abs(turn) < MIN_BEND:
            return None
        along, u = _turned(d, n, turn)
        q = x + _CENTER * rho * along
        for share, slack in _RADII:
            r = share * rho
            rough = fine_facet(labels, q, u, r, pair, rng, slack, _ERROR * r)
            if rough is not None:
                facet = _interior_facet(labels, rough, n, x, along, rng) or fine_facet(
                    labels, q, rough.normal, r, pair, rng, _FALLBACK
                )
                if facet is None or _meets(facet, x, d):
                    return facet
                break
    return None


def _interior_facet(labels, rough, n, x, d, rng):
    """A rough facet beyond the bend at x of one with normal n, measured at the largest possible radius, or None."""
    away = n - (n @ rough.normal) * rough.normal
    away *= np.sign(away @ d) / np.linalg.norm(away)
    ridge = rough.point - n @ (rough.point - x) / (n @ away) * away
    for s in _INWARD:
        found = fine_facet(labels, ridge + s * away, rough.normal, _INWARD_RATIO * s, rough.pair, rng, _SLACK)
        if found is not None:
            return found
    return None


def _meets(facet, x, d):
    """Whether a facet continues the boundary from the bend at x in direction d: a second bend may lie between both."""
    off, slope, size = abs(facet.plane @ np.append(x, 1.0)), abs(facet.normal @ d), 1.0 + np.linalg.norm(x)
    return off <= _BEND_ERROR * slope + _LATE * size


def _turn(labels, x, d, n, rho, pair):
    """Angle from d towards n in which the boundary goes on beyond the bend at x, if it is straight up to rho."""

    def on_circle(T):
        return labels(x + rho * (np.cos(T) * d + np.sin(T) * n))

    turn, _, above = bisect(on_circle, np.zeros((1, 1)), np.ones(1), -_FOLD, _FOLD, pair[1], _ALONG_ERROR)
    if above[0] != pair[0] or on_circle(np.array([[-_FOLD]]))[0] != pair[1]:
        return None
    along, u = _turned(d, n, turn[0])
    straight = bracket(labels, (x + rho / 2 * along)[None], u, _FLAT_TOL * rho, pair)[0]
    return turn[0] if straight else None


def _turned(d, n, turn):
    """Direction and unit normal of the boundary beyond a bend."""
    return np.cos(turn) * d + np.sin(turn) * n, np.cos(turn) * n - np.sin(turn) * d
