"""Local units at several points that are one unit: their weights and bias, combined by their information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import lapack

from .local_units import LocalUnits

__all__ = ["FusedUnit", "fuse_units"]

_ALIKE = 0.25  # relative difference of weights, and of heights, of what may be one unit (errors are 1 to 10 %)
_HEIGHT_ERROR = 0.1  # error of a height beside that, over the median height
_CONSISTENT = 6.0  # squared deviation per parameter of a local unit from the combined one: 1 if only errors differ
_RARE = 0.15  # of the usual number of points, below which a unit is chance
_SAME = 0.02  # relative difference of weights of one unit, of which single points are inconsistent
_SAME_BIAS = 0.3  # difference of its biases over the norm of its weights
_SHARE = 0.3  # of the points of a unit, below which overlapping units may have made up another one like it


@dataclass(frozen=True)
class FusedUnit:
    """A unit ``o g(w . u + b)`` and the local units that it explains."""

    weights: np.ndarray
    bias: float
    height: float
    local: LocalUnits


def fuse_units(pool):
    """Combine `LocalUnits` into a list of `FusedUnit`, and return it; those met too seldom are left out."""
    found, left = [], np.arange(len(pool))
    while len(left) > 1:
        alike = _alike(pool.take(left))
        members = left[np.flatnonzero(alike[alike.sum(axis=1).argmax()])]
        if len(members) < 2:
            break
        unit, members = _consistent(pool, members)
        if unit is not None:
            found.append(unit)
        left = np.setdiff1d(left, members)
    found.sort(key=lambda unit: -len(unit.local))
    found = [unit for k, unit in enumerate(found) if not any(_shadows(other, unit) for other in found[:k])]
    usual = np.median([len(unit.local) for unit in found]) if found else 0.0
    return [unit for unit in found if len(unit.local) >= _RARE * usual]


def _shadows(unit, other):
    """Whether another unit is the same, or like it and met so rarely that overlapping units may have made it up."""
    norm = np.linalg.norm(unit.weights)
    apart, shift = np.linalg.norm(unit.weights - other.weights), abs(unit.bias - other.bias)
    same = apart < _SAME * norm and shift < _SAME_BIAS * norm
    return same or (apart < _ALIKE * norm and len(other.local) < _SHARE * len(unit.local))


def _alike(units):
    """Which local units (B, B) may be one, by weights and heights."""
    norms, heights = np.linalg.norm(units.weights, axis=1), units.heights
    apart = np.linalg.norm(units.weights[:, None] - units.weights[None], axis=2)
    higher = np.abs(heights[:, None] - heights[None])
    low = _ALIKE * np.minimum(heights[:, None], heights[None]) + _HEIGHT_ERROR * np.median(heights)
    return (apart < _ALIKE * np.minimum(norms[:, None], norms[None])) & (higher < low)


def _consistent(pool, members):
    """The unit that most of some members are, without the worst ones; None and its first member if no two agree."""
    first = members[:1]
    while len(members) > 1:
        local = pool.take(members)
        x, deviation = _combined(local)
        if deviation.max() < _CONSISTENT:
            return FusedUnit(x[:-1], float(x[-1]), float(np.median(local.heights)), local), members
        members = np.delete(members, deviation.argmax())
    return None, first


def _combined(local):
    """Weights and bias (D + 1,) of one unit, and the squared deviations per parameter (B,) of its local units."""
    B, D = local.weights.shape
    T = np.tile(np.eye(D + 1), (B, 1, 1))
    T[:, D, :D] = local.points
    values = np.column_stack([local.weights, local.offsets])
    Tt = T.transpose(0, 2, 1)
    A = np.sum(Tt @ local.information @ T, axis=0)
    v = np.sum(Tt @ (local.information @ values[..., None]), axis=0)[:, 0]
    size = 1.0 / np.sqrt(np.maximum(np.diag(A), np.finfo(float).tiny))
    x = size * lapack.lstsq(A * size * size[:, None], v * size, rcond=None)[0]
    off = (T @ x) - values
    return x, np.einsum("bi,bij,bj->b", off, local.information, off) / (D + 1)
