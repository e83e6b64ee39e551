"""Hyperplanes of one hidden layer through positions over long baselines, and units masked by larger ones.

The jumps at a unit's positions give its outgoing weights, without a fit of the other units. The residual of the located
units is a network of the remaining ones, whose boundaries are far apart.
"""

from __future__ import annotations

import numpy as np

from ...constants import INPUT_ROUNDING, NARROWEST, NEAR_RADII, SAME_PLANE, SPARE
from ..kernel.robust_fit import fit_plane_near
from ..kernel.windows import locate_by_lines
from .candidates import plane_distances
from .units import ReLUUnits

__all__ = ["with_located_units"]

_PER_WEIGHT = 2  # positions per weight of a hyperplane, and beyond:
_POOL = 2  # random points for each of them: those are taken from which other hyperplanes are farthest
_FREE = 0.5  # half width of a window over the distance of the next hyperplane
_WIDEST_WINDOW = 0.1  # `NARROWEST`: candidates are right to that
_WIDEST_HIDDEN = (1.0, 0.3)  # `_WIDEST_WINDOW` of units detected in residuals, where hardly any other boundary is near
_LEAST_SHARE = 0.6  # of the windows, that contain the boundary of a unit that is located
_LEAST_ERROR = 1e-3  # error of a hyperplane from which its unit is not located
_LEAST_ERROR_HIDDEN = 1e-2  # `_LEAST_ERROR` of units detected in residuals: they are small
_ALIKE = 0.05  # `SAME_PLANE` of two candidates that may be
_FEWEST_INPUTS = 4  # with fewer, hundreds of different hyperplanes are that close
_SCANS = 3  # of residuals at most


def with_located_units(probe, candidates, hidden_by, rng):
    """Candidate `ReLUUnits` with accurate hyperplanes and outgoing weights, and the units that these mask.

    Candidates and results are in the probe's units. Candidates that few positions confirm are left out.
    ``hidden_by(units)`` returns a probe of the residual of units, and the candidates that lines detect in it. Each unit
    takes 24 queries per weight.
    """
    if len(candidates.weights) < _FEWEST_INPUTS:
        return candidates
    units = _located(probe, candidates, rng, _WIDEST_WINDOW, _LEAST_ERROR)
    for _ in range(_SCANS):
        residual, new = hidden_by(units)
        new = _beside(units, new, probe.length_scale)
        for widest in _WIDEST_HIDDEN:
            new = _located(residual, new, rng, widest, _LEAST_ERROR_HIDDEN)
        new = _beside(units, new, probe.length_scale)
        if len(new) == 0:
            break
        units = units.joined(new)
    return units


def _located(probe, units, rng, widest, least_error):
    """The units that are located, with hyperplanes through positions and outgoing weights in the probe's units."""
    if len(units) == 0:
        return units
    which, P, width = _windows(probe, units, rng, widest)
    E = units.weights.T[which]
    there = locate_by_lines(probe, P, E, width, n_rounds=1)
    P = P + there.offset[:, None] * E
    parts, n = [], len(which) // len(units)
    for i in range(len(units)):
        found = (which == i) & there.found
        if found.sum() < _LEAST_SHARE * n:
            continue
        fit = fit_plane_near(P[found], there.error[found] + INPUT_ROUNDING, units.weights[:, i], units.biases[i])
        if fit is None:
            continue
        error = fit.normal_error * max(1.0, fit.residual)
        weight = width[found][fit.kept] ** 2
        if error < least_error:
            parts.append((fit.normal, fit.offset, weight @ there.jump[found][fit.kept] / weight.sum(), error))
    if not parts:
        return units.take(slice(0, 0))
    W, b, outgoing, errors = (np.array(part) for part in zip(*parts, strict=True))
    return _merged(ReLUUnits(W.T, b, outgoing, errors), probe.length_scale)


def _windows(probe, units, rng, widest):
    """Units (n,), centers (n, D) on their hyperplanes, and half widths (n,), at which positions are located."""
    D, m = units.weights.shape
    n = _PER_WEIGHT * (D + 1) + SPARE
    which = np.repeat(np.arange(m), _POOL * n)
    E = units.weights.T[which]
    P = probe.spread * rng.choice(NEAR_RADII, (len(which), 1)) * rng.standard_normal((len(which), D))
    P -= (np.sum(P * E, axis=1) + units.biases[which])[:, None] * E
    rate = np.maximum(np.abs(E @ units.weights), np.finfo(float).tiny)
    distance = np.abs(P @ units.weights + units.biases) / rate
    planes = units.planes(probe.length_scale)
    distance[(plane_distances(planes, planes) < _ALIKE)[which]] = np.inf  # another candidate of that unit
    free = distance.min(axis=1).reshape(m, -1)
    chosen = np.argsort(-free, axis=1)[:, :n] + np.arange(m)[:, None] * _POOL * n
    chosen = chosen.ravel()
    return (
        which[chosen],
        P[chosen],
        np.clip(_FREE * free.ravel()[chosen], NARROWEST * probe.spread, widest * probe.spread),
    )


def _beside(known, units, length_scale):
    """The units whose hyperplanes are not those of known ones: boundaries there are what errors of these leave."""
    if len(known) == 0 or len(units) == 0:
        return units
    gaps = plane_distances(units.planes(length_scale), known.planes(length_scale))
    return units.take(gaps.min(axis=1) > _ALIKE)


def _merged(units, length_scale):
    """The units without those whose hyperplane is one of another, more accurate unit."""
    planes, kept = units.planes(length_scale), []
    for k in np.argsort(units.errors, kind="stable"):
        if not kept or plane_distances(planes[kept], planes[k : k + 1]).min() > SAME_PLANE:
            kept.append(k)
    return units.take(np.array(kept))
