"""A new unit at a bend of the boundary: the scale of the facet beyond, from known units."""

import numpy as np

from ...constants import NEAR_OFFSET
from .points import bracket, sizes
from .surfaces import crossing
from .units import Pencil

_STEPS = (0.3, 0.1)  # beyond a known hyperplane, at which the scale of a facet is measured, and confirmed
_SHARE = 0.5  # of the way to the bend, at most, for the first of these; the second must be another point
_FLAT_AT = np.array([0.4, 0.97])  # of the way to that hyperplane, where the facet must be flat
_MAX_TRIED = 40  # known hyperplanes from which the scale is measured (budget)
_MIN_LEVER = 1e-4  # distance of a boundary point from the facet's plane, from which it determines or confirms a scale


def pencil_at(plane, facet, x):
    """Pencil of the plane before a bend x and the facet beyond."""
    return Pencil(np.array([plane / np.linalg.norm(plane[:-1]), facet.plane]), x)


def scale_of(labels, surface, plane, facet):
    """Factor mu > 0 by which the facet's plane continues `plane`, so that their difference is the unit's, or None.

    The boundary points that were bisected for it come second.

    Beyond a known unit k the difference of logits is ``mu * facet.plane + 2 c_k |z_k|``: one boundary point there
    determines mu, two labels at a second hyperplane confirm it.
    """
    signs, found, points = surface.signs(facet.point), [], []
    for x, ridge, J in _places(surface, plane, facet, signs)[:_MAX_TRIED]:
        if not _flat(labels, facet, ridge):
            continue
        for mu in found:
            if _confirmed(labels, facet, x, J, mu):
                return mu, points
        y = crossing(labels, x, facet.normal, _STEPS[0], facet.pair)
        if y is None:
            continue
        J = _jump(surface, signs, y)
        lever = facet.plane @ np.append(y, 1.0)
        if abs(lever) < _MIN_LEVER or J is None:
            continue
        mu = -(J @ np.append(y, 1.0)) / lever
        if mu > 0:
            found.append(mu)
            points.append(y)
    return None, points


def _jump(surface, signs, x):
    """Plane that known units add at x to that of `signs`; None if a unit of unknown coefficient has another sign."""
    now = surface.signs(x)
    changed = now != signs
    if not np.any(changed) or np.any(np.isnan(surface.coef[changed])):
        return None
    return surface.plane_at(now) - surface.plane_at(signs)


def _places(surface, plane, facet, signs):
    """Points in the facet's plane beyond one known hyperplane each, with the jump there; the largest lever first.

    The second places of all hyperplanes follow: with a single known unit they confirm that no other bend is near.
    """
    H, q, n = surface.units.hyperplanes, facet.point, facet.normal
    side = np.sign(plane @ np.append(q, 1.0))  # of the bend: the ridge lies where `plane` is zero
    places = []
    for k in np.flatnonzero(~np.isnan(surface.coef) & (surface.coef != 0)):
        e = H[k, :-1] - (H[k, :-1] @ n) * n
        size = np.linalg.norm(e)
        if size < 1e-6:
            continue
        e *= -signs[k] / size
        t = abs(H[k] @ np.append(q, 1.0)) / size
        slope = side * (plane[:-1] @ e)
        room = np.inf if slope >= 0 else abs(plane @ np.append(q, 1.0)) / -slope
        if t >= 0.9 * room:
            continue
        for again, step in enumerate(_STEPS):
            x = q + (t + min(step, _SHARE * step / _STEPS[0] * (room - t))) * e
            J = _jump(surface, signs, x)
            if J is not None:
                places.append((again, -abs(J @ np.append(x, 1.0)) / (1 + t) ** 2, x, q + t * e, J))
    return [p[2:] for p in sorted(places, key=lambda p: p[:2])]


def _flat(labels, facet, ridge):
    """Whether the facet is flat on the way to a known hyperplane."""
    X = facet.point + _FLAT_AT[:, None] * (ridge - facet.point)
    return bool(np.all(bracket(labels, X, facet.normal, NEAR_OFFSET * sizes(X), facet.pair)))


def _confirmed(labels, facet, x, J, mu):
    """Whether the boundary passes the point beyond a known hyperplane that mu predicts."""
    plane = mu * facet.plane + J
    n = plane[:-1] / np.linalg.norm(plane[:-1])
    slope = plane[:-1] @ facet.normal
    if abs(slope) < 1e-3 * np.linalg.norm(plane[:-1]):
        return False
    x = x - (plane @ np.append(x, 1.0)) / slope * facet.normal
    if abs(facet.plane @ np.append(x, 1.0)) < _MIN_LEVER:
        return False
    return bool(bracket(labels, x[None], n, NEAR_OFFSET * sizes(x[None]), facet.pair)[0])
