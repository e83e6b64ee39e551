"""Straight walks on facets to the next bend: known hyperplanes are crossed, unknown ones give a pencil of planes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .facets import facet_across, find_facet
from .points import bisect, bracket, sizes

__all__ = ["Pencil", "Walk", "walk"]

_FRACTIONS = np.array([0.01, 0.05, 0.2, 0.5, 1.0])  # of a walk's length, at which the boundary is queried
_OFFSET = 1e-9  # of both labels from the boundary, relative to 1 + |x|; planes are known to about 1e-12
_BEND_TOL = 1e-8  # of a bend's position along a walk
_BEYOND = (0.08, 0.02, 0.005, 1.25e-3, 3e-4)  # distances beyond a bend at which the next facet is measured
_MAX_CROSSINGS = 12  # known hyperplanes per walk; errors of planes grow with each
_LENGTHS = (0.3, 12.0)  # of walks, log-uniform


@dataclass(frozen=True)
class Pencil:
    """Planes (2, D + 1) of two facets that meet at a bend, and the bend's position (D,)."""

    planes: np.ndarray
    bend: np.ndarray


@dataclass(frozen=True)
class Walk:
    """The facets that a walk reached, the pencil of its bend at an unknown unit or None, and whether it was clean."""

    facets: list
    pencil: Pencil | None
    clean: bool


def walk(labels, facet, units, rng):
    """Walk from a facet in a random direction across known hyperplanes up to the first unknown bend."""
    hyperplanes = units.hyperplanes
    length = np.exp(rng.uniform(*np.log(_LENGTHS)))
    d, facets = rng.standard_normal(len(facet.point)), []
    if rng.random() < 0.3:
        d -= facet.point  # towards the center, where most units switch
    for _ in range(_MAX_CROSSINGS):
        d = d - (d @ facet.normal) * facet.normal
        d /= np.linalg.norm(d)
        first, second, unit = _next_known(facet.point, d, hyperplanes)
        end = min(length, first)
        s = end * np.where(_FRACTIONS < 1, _FRACTIONS, 1 - 1e-6)
        X = facet.point + s[:, None] * d
        bad = np.flatnonzero(~bracket(labels, X, facet.normal, _OFFSET * sizes(X), facet.pair))
        if len(bad):
            low = s[bad[0] - 1] if bad[0] else 0.0
            low = _bisect_bend(labels, facet, d, low, s[bad[0]])
            if units.has_ridge(facet.point + low * d):
                return Walk(facets, None, True)
            return _at_bend(labels, facet, d, low, facets, rng)
        if first >= length:
            return Walk(facets, None, True)
        ridge = facet.point + first * d
        after = facet_across(labels, facet, ridge, d, min(0.3, 0.5 * (second - first)), hyperplanes[unit])
        if after is None:
            return Walk(facets, None, True)
        middle = (ridge + after.point) / 2  # both lie on the new facet
        if not bracket(labels, middle[None], after.normal, _OFFSET * sizes(middle[None]), after.pair)[0]:
            return Walk(facets, None, False)
        facets.append(after)
        length, facet = length - first, after
    return Walk(facets, None, True)


def _next_known(x, d, hyperplanes):
    """Distances from x along d to the first two hyperplanes, and the index of the first."""
    if not len(hyperplanes):
        return np.inf, np.inf, -1
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -(hyperplanes @ np.append(x, 1.0)) / (hyperplanes[:, :-1] @ d)
    t = np.append(np.where(np.isfinite(t) & (t > 1e-9), t, np.inf), np.inf)
    order = np.argsort(t)
    return t[order[0]], t[order[1]], order[0]


def _bisect_bend(labels, facet, d, low, high):
    """The distance along d, between low and high, at which the boundary leaves the facet."""
    while high - low > _BEND_TOL * (1.0 + high):
        s = low + (high - low) * np.array([0.25, 0.5, 0.75])
        X = facet.point + s[:, None] * d
        bad = np.flatnonzero(~bracket(labels, X, facet.normal, _OFFSET * sizes(X), facet.pair))
        first = bad[0] if len(bad) else 3
        low, high = (low if first == 0 else s[first - 1]), (high if first == 3 else s[first])
    return low


def _at_bend(labels, facet, d, low, facets, rng):
    """The end of a walk at a bend: its pencil if the facet beyond is found."""
    bend = facet.point + low * d
    for rho in _BEYOND:
        beyond = _facet_beyond(labels, facet, bend, d, rho, rng)
        if beyond is None:
            continue
        slack = 1e-5 * rho + 1e-7 + 4 * _OFFSET * (1 + np.linalg.norm(bend))
        sine = np.linalg.norm(beyond.normal - (beyond.normal @ facet.normal) * facet.normal)
        if sine > 1e-6 and abs(beyond.plane @ np.append(bend, 1.0)) < slack:
            return Walk([*facets, beyond], Pencil(np.array([facet.plane, beyond.plane]), bend), False)
    return Walk(facets, None, False)


def _facet_beyond(labels, facet, bend, d, rho, rng):
    """The facet at distance rho beyond a bend, or None."""
    x = bend + rho * d
    for size in (0.05 * rho, rho, 4.0 * rho):
        if bracket(labels, x[None], facet.normal, size, facet.pair)[0]:
            break
    else:
        return None
    t = bisect(labels, x[None], facet.normal, -size, size, facet.pair[1])[0][0]
    x = x + t * facet.normal
    return find_facet(labels, x, facet.normal, facet.pair, rng, largest=0.4 * rho)
