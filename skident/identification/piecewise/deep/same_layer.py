"""Kinks of deeper units, told by their bends where units of the layer are crossed."""

from __future__ import annotations

import numpy as np

from ..kernel.locate import locate, window_widths

__all__ = ["bends_at"]

_RAYS, _LOOKED_AT, _FEWEST = 60, 8, 5  # directions from a kink, points of its facet looked at, and fewest that tell
_REACH, _ROOM = 2.0, 0.02  # of the rays and behind a crossing, in units of sqrt(D)
_NEAR = 1e-6


def bends_at(probe, unit, others, rng):
    """Whether a kink ends where it crosses others of its layer, as only those of deeper layers do.

    A unit's kink is flat within a cell of the known layers, whatever other units of its layer do there.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
        As its first kink tells it.
    others : list of FacetUnit
        Units of the layer.
    rng : numpy.random.RandomState

    Returns
    -------
    bool
        False where that cannot be told.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    40 to 80 queries.
    """
    points = _behind_others(unit, others, rng)
    if len(points) < _FEWEST:
        return False
    normals, clear = np.tile(unit.normal, (len(points), 1)), np.zeros(len(points), dtype=bool)
    for width in window_widths(probe):
        there = locate(probe, points, normals, width)
        near = np.abs(np.nan_to_num(there.offset)) < _NEAR + 30.0 * (there.error + unit.error)
        if np.any(there.found & near):
            return False
        clear |= np.isfinite(there.error)
    return bool(clear.sum() >= _FEWEST)


def _behind_others(unit, others, rng):
    """Points of the unit's facet in the cell of its first kink, behind the kinks of others."""
    known, x, n = unit.known, unit.point, unit.normal
    Z, phi = known.evaluate(x[None])
    far = [other for other in others if other.determined(phi)[0]]
    if not far:
        return x[None][:0]
    active, length = np.repeat(Z > 0, _RAYS, axis=0), np.sqrt(known.n_inputs)
    U = rng.standard_normal((_RAYS, len(x)))
    U -= (U @ n)[:, None] * n
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    dZ, dphi = known.tangents(active, U)
    thetas = np.column_stack([other.theta for other in far])
    with np.errstate(divide="ignore", invalid="ignore"):
        end, met = -Z / dZ, -(phi @ thetas) / (dphi @ thetas)
    end = np.where(end > 0, end, np.inf).min(axis=1).clip(max=_REACH * length)
    met = np.where(met > 0, met, np.inf).min(axis=1)
    room = end - met
    best = np.argsort(-room)[:_LOOKED_AT]
    best = best[room[best] > _ROOM * length]
    return x + (met[best] + 0.7 * room[best])[:, None] * U[best]
