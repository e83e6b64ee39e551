"""Facets of deeper units that were taken for units of a layer."""

from __future__ import annotations

import numpy as np

__all__ = ["drop_facets"]

_TESTED_SIDE = 20  # predicted points on one side of another unit
_LEAST_ON_SIDE = 4  # of these, fewer than which say nothing
_SIDE_SHARE = 0.35  # of these that are confirmed on the side where facets of deeper units end, at most


def drop_facets(search):
    """Drop facets of deeper units: they end where another unit of the layer changes its sign."""
    for unit in list(search.units):
        if unit.share == 1.0 or len(unit.wrong) == 0:
            continue
        others = [other for other in search.units if other is not unit]
        X, V = search.further_points(unit.w, unit.b, unit.mask)
        sides, bad = (_sides(search, P, others) for P in (X, unit.wrong))
        for k in range(len(others)):
            side = sides[:, k] == np.sign(bad[:, k].sum())
            some = search.rng.permutation(np.flatnonzero(side))[:_TESTED_SIDE]
            if abs(bad[:, k].mean()) < 1.0 or len(some) < _LEAST_ON_SIDE or side.mean() > 0.5:
                continue
            bends = search.critical.bends(X[some], V[some])
            if np.sum(bends == 1) < _SIDE_SHARE * np.sum(bends >= 0):
                search.units.remove(unit)
                search.explained[unit.members] = False
                break


def _sides(search, X, units):
    """Signs (n, k) of units at points X (n, D)."""
    H = search.prefix.outputs(X)
    return np.sign([H @ unit.w + unit.b for unit in units]).reshape(len(units), len(X)).T
