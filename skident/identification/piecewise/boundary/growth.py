"""A new unit at a bend of the boundary: the facet beyond, its scale from known units, the unit's hyperplane."""

from __future__ import annotations

import numpy as np

from ...constants import MIN_BEND, NEAR_OFFSET, ON_UNIT
from .beyond import MANY_INPUTS, facet_from_plane
from .facets import find_facet
from .points import bracket, sizes
from .surfaces import crossing
from .units import Pencil

__all__ = ["facet_beyond", "just_beyond", "pencil_at", "scale_of", "waiting_unit"]

_BEYOND = (0.08, 0.02, 4e-3, 5e-4)  # distances beyond a bend at which the next facet is measured
_FOLD = 3.0  # radians from the direction of the path, up to which the facet beyond a sharp bend may turn
_FOLD_TOL = 1e-9  # radians, of that turn: find_facet bisects again
_N_AGREEING = 3  # boundary points beyond a bend that must give one scale (statistics)
_NEAR_BEND = 0.02  # distance of these points beyond the bend
_ASIDE = 0.3  # of that distance, aside
_AGREEMENT = 1e-6  # relative, of these scales; those of another unit differ by percents
_MIN_SINE = 1e-6  # of the angle at a bend; smaller ones are lost in rounding
_STEPS = (0.3, 0.1)  # beyond a known hyperplane, at which the scale of a facet is measured, and confirmed
_SHARE = 0.5  # of the way to the bend, at most, for the first of these; the second must be another point
_FLAT_AT = np.array([0.4, 0.97])  # of the way to that hyperplane, where the facet must be flat
_MAX_TRIED = 40  # known hyperplanes from which the scale is measured (budget)
_MIN_SIDE = 1e-6  # distance of a boundary point from the new unit's hyperplane, from which its side is certain
_MIN_LEVER = 1e-4  # distance of a boundary point from the facet's plane, from which it determines or confirms a scale


def facet_beyond(labels, plane, pair, x, d, rng):
    """The facet beyond the bend at x (D,) of a facet with `plane`, in direction d; None if there is none."""
    n = plane[:-1] / np.linalg.norm(plane[:-1])
    if len(x) >= MANY_INPUTS and (facet := facet_from_plane(labels, n, pair, x, d, rng)) is not None:
        return facet
    for rho in _BEYOND:
        q = x + rho * d
        size = next((s for s in (0.05 * rho, rho, 4.0 * rho) if bracket(labels, q[None], n, s, pair)[0]), None)
        if size is None:
            facet = _folded(labels, x, d, n, rho, pair, rng)
        else:
            q = crossing(labels, q, n, size, pair)
            if q is not None and abs(plane @ np.append(q, 1.0)) < MIN_BEND * rho * np.linalg.norm(plane[:-1]):
                return None
            facet = None if q is None else find_facet(labels, q, n, pair, rng, 0.4 * rho, d)
        if facet is None:
            continue
        slack = 1e-5 * rho + 1e-7 + 4 * NEAR_OFFSET * (1 + np.linalg.norm(x))
        sine = np.linalg.norm(facet.normal - (facet.normal @ n) * n)
        if sine > _MIN_SINE and abs(facet.plane @ np.append(x, 1.0)) < slack:
            return facet
    return None


def _folded(labels, x, d, n, rho, pair, rng):
    """The facet beyond a bend at x so sharp that its line along n misses it: bisected on a circle around x."""
    low, high = -_FOLD, _FOLD
    seen = labels(x + rho * (np.cos([[low], [high]]) * d + np.sin([[low], [high]]) * n))
    if seen[0] != pair[1] or seen[1] != pair[0]:
        return None
    while high - low > _FOLD_TOL:
        angle = (low + high) / 2
        seen = labels((x + rho * (np.cos(angle) * d + np.sin(angle) * n))[None])[0]
        if seen not in pair:
            return None
        low, high = (angle, high) if seen == pair[1] else (low, angle)
    away = np.cos(low) * d + np.sin(low) * n
    return find_facet(labels, x + rho * away, np.cos(low) * n - np.sin(low) * d, pair, rng, 0.4 * rho, away)


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
        if mu > 0 and _beyond(mu * facet.plane - plane, facet.point, y):
            found.append(mu)
            points.append(y)
    return None, points


def waiting_unit(labels, surface, plane, x, d, waiting, rng):
    """The facet of `waiting` whose unit the bend at x of a path in direction d on `plane` belongs to, and its scale.

    Boundary points, the third result, beyond the bend determine that scale several times: they cost far less than a
    facet there. The first two are None if no facet's scales agree.
    """
    items = [w for w in waiting if w[0] is surface]
    Y = just_beyond(labels, plane, surface.pair, x, d, rng) if items else []
    if len(Y) < _N_AGREEING:
        return None, None, Y
    one = np.column_stack([Y, np.ones(len(Y))])
    for item in items:
        own, B = surface.plane_at(surface.signs(item[1])), one @ item[2].plane
        if np.abs(B).min() < _MIN_LEVER:
            continue
        scales = one @ (own - plane) / B
        mu = np.median(scales)
        jump = mu * item[2].plane - own
        on = abs(jump @ np.append(x, 1.0)) < ON_UNIT * (1 + np.linalg.norm(x)) * np.linalg.norm(jump[:-1])
        if mu > 0 and on and np.ptp(scales) < _AGREEMENT * mu:
            return item, mu, Y
    return None, None, Y


def just_beyond(labels, plane, pair, x, d, rng, k=_N_AGREEING):
    """Boundary points, k or none, beyond the bend at x, off the facet before it."""
    n, Y = plane[:-1] / np.linalg.norm(plane[:-1]), []
    for _ in range(k):
        t = rng.standard_normal(len(x))
        t -= (t @ n) * n
        q = x + _NEAR_BEND * (d + _ASIDE * t / np.linalg.norm(t))
        y = crossing(labels, q, n, 0.25 * _NEAR_BEND, pair)
        if y is None or abs(plane @ np.append(y, 1.0)) < MIN_BEND * _NEAR_BEND * np.linalg.norm(plane[:-1]):
            return []
        Y.append(y)
    return Y


def _beyond(unit, q, y):
    """Whether y lies clearly on the same side of the new unit's hyperplane as q.

    On the other side it is a point of the surface before the bend, and `mu` puts the hyperplane through it.
    """
    return (unit @ np.append(y, 1.0)) * np.sign(unit @ np.append(q, 1.0)) > _MIN_SIDE * np.linalg.norm(unit[:-1])


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
