"""Saturation regions, where all units except free or known ones are saturated: points inside and on their walls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import FINE_RANK_TOL
from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from ...constants import MAX_OUTPUT
from ..downstream import Downstream
from ..kernel.patch import SATURATED, Patch

__all__ = ["OppositeRegions", "SaturationRegion", "Wall", "opposite_regions", "spread_points"]

# Two opposite regions with D - 1 free units.
_N_DIRECTIONS = 2000  # budget of random directions along which units saturate
_N_MEASURED = 30  # budget of candidates whose distance is computed in full
_WELL_CONDITIONED = 15.0  # condition of the free units' weights
_ILL_CONDITIONED_COST = 9.0  # factor by which a worse conditioned choice has to be nearer
_MAX_FREE_PREACTIVATION = 3.8  # of free units: outputs up to 0.999
# Points of one region.
_N_RAYS = 24  # per point, a third each random, near the base's direction, towards other bases
_MIN_TURN = 0.1  # of a ray near the base's direction, in units of 1 / sqrt(D) of its distance
_MAX_TURN = 3.0  # same
_FAR = 0.3  # part of the largest distance up to which half of the points are moved without need: more variety
_MIN_SINE = 1e-2  # between a weight vector and the span of others, below which units are not moved together
_NO_RATE = 1e-12  # change of a pre-activation per distance below which it is constant: rounding of unit vectors


@dataclass(frozen=True)
class OppositeRegions:
    """Both regions where units `free` (k,) are free and `others` saturated, ``k = D - 1``.

    The input changes by ``t @ moves`` (k, D) if free pre-activations change by t; `points` (2, D) have ``t = 0``.
    """

    free: np.ndarray
    others: np.ndarray
    moves: np.ndarray
    points: np.ndarray

    def at(self, T, regions):
        """Inputs (n, D) at free pre-activations T (n, k) in regions (n,), each 0 or 1."""
        return self.points[regions] + T @ self.moves

    def patch(self, T):
        """The patch of 2 n points at free pre-activations T (n, k), those of region 0 first; its levels are zeros."""
        points = np.concatenate([point + T @ self.moves for point in self.points])
        return Patch(self.free, self.others, self.moves, points, np.zeros((len(points), len(self.others))))


def opposite_regions(downstream):
    """The `OppositeRegions` near the origin, for a first layer of more units than inputs; raises NotIdentified.

    Free units leave one direction n, along which all others have to saturate: the distance is the largest
    ``margin / |w_i . n|``. Each of many random directions is replaced by the normal to the D - 1 units that are most
    orthogonal to it: no other unit is left that nearly is. That is a few hundred standard deviations, not thousands.
    """
    sets, normals, worth = _candidate_sets(downstream)
    best, nearest = None, downstream.farthest
    for i in np.argsort(-worth)[:_N_MEASURED]:
        regions, distance = _regions_along(downstream, np.sort(sets[i]), normals[i])
        if distance < nearest:
            best, nearest = regions, distance
    if best is None:
        message = f"no two saturation regions with {downstream.shape[0] - 1} free units are in reach"
        raise NotIdentified("second layer", "unreachable", message)
    return best


def _candidate_sets(downstream):
    """Sets of free units (n, D - 1), their common normals (n, D), and the approximate inverse distance (n,) there."""
    W, D = downstream.weights, downstream.shape[0]
    drawn = downstream.rng.standard_normal((_N_DIRECTIONS, D))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    sets = np.argsort(np.abs(drawn @ W) / np.sqrt(np.linalg.norm(W, axis=0)), axis=1)[:, : D - 1]
    _, s, Vt = svd(W.T[sets], full_matrices=True)
    normals, conditions = Vt[:, -1], s[:, 0] / np.maximum(s[:, -1], np.finfo(float).tiny)
    rates = np.abs(normals @ W)
    np.put_along_axis(rates, sets, np.inf, axis=1)
    return sets, normals, rates.min(axis=1) / np.where(conditions < _WELL_CONDITIONED, 1.0, _ILL_CONDITIONED_COST)


def _regions_along(downstream, free, normal):
    """The `OppositeRegions` along the normal to free units, and their distance from the origin's projection."""
    W, b = downstream.weights, downstream.biases
    others, moves = np.setdiff1d(np.arange(W.shape[1]), free), lapack.pinv(W[:, free])
    base = -b[free] @ moves
    levels, rates = base @ W[:, others] + b[others], np.abs(normal @ W[:, others])
    free_share = _MAX_FREE_PREACTIVATION * np.linalg.norm(moves @ W[:, others], axis=0)
    distance = np.max((SATURATED[downstream.activation] + free_share + np.abs(levels)) / rates, initial=0.0)
    points = base + distance * np.array([[1.0], [-1.0]]) * normal
    return OppositeRegions(free, others, moves, points), distance


@dataclass(frozen=True)
class Wall:
    """The hyperplane of a unit, with pre-activations from low to high there, and how far these are to be changed."""

    unit: int
    low: float
    high: float
    reach: float = 0.0


@dataclass(frozen=True)
class SaturationRegion:
    """Where all unknown units are saturated with given signs (m_1,), whatever the known ones do."""

    downstream: Downstream
    signs: np.ndarray

    def points(self, bases, fixed, levels, others, reach=0.0):
        """Points (n', D), n' <= n, of the region with given pre-activations `levels` (n, q) of units `fixed` (n, q).

        Each of n bases (n, D) is moved by the least change that gives these levels, then along one of a few rays that
        leave them unchanged until units `others` (u,) are saturated, `reach` beyond if the last fixed unit is to be
        moved that far.
        """
        weights, farthest, rng = self.downstream.weights, self.downstream.farthest, self.downstream.rng
        bases, feet, span, moves = self._feet(bases, fixed, levels)
        rays = _rays(bases, span, rng)
        lowest, highest = self._steps_inside(feet, rays, others, reach * np.abs(moves @ weights[:, others]))
        wanted = np.exp(rng.uniform(0.0, np.log(_FAR * farthest), lowest.shape))
        steps = np.clip(np.where(rng.uniform(size=lowest.shape) < 0.5, wanted, 0.0), lowest, highest)
        points = feet[:, None] + np.where(np.isfinite(steps), steps, 0.0)[..., None] * rays
        inside = (lowest <= highest) & (np.linalg.norm(points, axis=2) <= farthest)
        chosen = np.argmax(inside * rng.uniform(0.1, 1.0, inside.shape), axis=1)
        found = np.flatnonzero(inside[np.arange(len(feet)), chosen])
        return points[found, chosen[found]]

    def _feet(self, bases, fixed, levels):
        """Well-conditioned ones of the bases (n', D), their feet (n', D) at given levels, spans (n', D, q) of weights.

        Last come the moves (n', D) that change the pre-activation of the last fixed unit by 1.
        """
        q, A = fixed.shape[1], np.moveaxis(self.downstream.weights[:, fixed], 0, 1)
        Q, R = lapack.qr(A, mode="complete")
        R, span = R[:, :q], Q[:, :, :q]
        sines = np.abs(np.diagonal(R, axis1=1, axis2=2)) / np.linalg.norm(A, axis=1)
        well = np.flatnonzero(sines.min(axis=1, initial=1.0) > _MIN_SINE)
        R, span, bases, A = np.swapaxes(R[well], 1, 2), span[well], bases[well], A[well]
        missing = levels[well] - self.downstream.biases[fixed[well]] - np.einsum("nd,ndq->nq", bases, A)
        feet = bases + (span @ lapack.solve(R, missing[..., None]))[..., 0]
        last = np.broadcast_to(np.eye(q)[:, -1:] if q else np.zeros((0, 1)), (len(R), q, 1))
        return bases, feet, span, (span @ lapack.solve(R, last))[..., 0]

    def _steps_inside(self, feet, rays, others, more):
        """Least and largest steps (n, r) along rays (n, r, D) from feet (n, D) that stay inside by margins (n, u)."""
        signs, W = self.signs[others], self.downstream.weights[:, others]
        levels = (signs * (feet @ W + self.downstream.biases[others]) - more)[:, None] - self.downstream.margin
        rates = signs * (rays @ W)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = -levels / rates
        lowest = np.max(np.where(rates > _NO_RATE, ends, -np.inf), axis=2, initial=-np.inf)
        highest = np.min(np.where(rates < -_NO_RATE, ends, np.inf), axis=2, initial=np.inf)
        outside = np.any((np.abs(rates) <= _NO_RATE) & (levels < 0.0), axis=2)
        return np.where(outside, np.inf, lowest), np.where(outside, -np.inf, highest)

    def crossings(self, points, wall, known, others):
        """Those of points (n, D) that can cross a wall, and moves (n', D) that change its unit's pre-activation by 1.

        Meanwhile units `known` (k,) are constant, and `others` (u,) stay saturated with the signs of the region.
        """
        downstream, levels = self.downstream, self.downstream.preactivations(points)
        w = downstream.weights[:, wall.unit]
        near = np.abs(levels[:, known]) < downstream.margin + wall.reach
        A = downstream.weights[:, known] * near[:, None]
        moves = w - (A @ (lapack.pinv(A, rcond=FINE_RANK_TOL) @ w)[..., None])[..., 0]
        gains = moves @ w
        well = gains > _MIN_SINE**2 * (w @ w)
        moves = moves / np.where(well, gains, 1.0)[:, None]
        change = np.abs(moves @ downstream.weights) * wall.reach
        constant = np.all(near | (np.abs(levels[:, known]) - change[:, known] > downstream.margin), axis=1)
        depth = self.signs[others] * levels[:, others] - change[:, others]
        inside = np.all(depth > SATURATED[downstream.activation], axis=1)
        chosen = np.flatnonzero(well & constant & inside)
        return points[chosen], moves[chosen]


def _rays(bases, span, rng):
    """Unit vectors (n, r, D) orthogonal to spans (n, D, q): random, near the bases' directions, towards other bases."""
    n, D, q = span.shape
    if q == D:
        return np.zeros((n, 1, D))
    third = _N_RAYS // 3
    random = rng.standard_normal((n, third, D))
    distances = np.linalg.norm(bases, axis=1)[:, None, None]
    turns = np.exp(rng.uniform(np.log(_MIN_TURN), np.log(_MAX_TURN), (n, third, 1))) / np.sqrt(D)
    near = bases[:, None] + distances * turns * rng.standard_normal((n, third, D))
    towards = bases[rng.randint(n, size=(n, third))] - bases[:, None] if n else random
    rays = np.concatenate([random, near, towards], axis=1)
    rays -= (rays @ span) @ np.swapaxes(span, 1, 2)
    return rays / np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), np.finfo(float).tiny)


def spread_points(region, known, others, bases, n, wall=None):
    """Up to n points (n', D) of a region, or on one of its walls, with various numbers of `KnownUnits` free.

    Random known units, from none to D (less the wall's), are given outputs uniform in (-.97, .97), starting from base
    points (p, D) of the region; units `others` (u,) are saturated.
    """
    D, rng, reach = region.downstream.shape[0], region.downstream.rng, 0.0 if wall is None else wall.reach
    most = min(D if wall is None else D - 1, len(known.units))
    sizes, parts = rng.randint(most + 1, size=n), [np.zeros((0, D))]
    for q in np.unique(sizes):
        count = int(np.sum(sizes == q))
        chosen = np.argsort(rng.uniform(size=(count, len(known.units))), axis=1)[:, :q]
        levels = known.levels(rng.uniform(-MAX_OUTPUT, MAX_OUTPUT, (count, q)), chosen)
        fixed = known.units[chosen]
        if wall is not None:
            fixed = np.column_stack([fixed, np.full(count, wall.unit)])
            levels = np.column_stack([levels, rng.uniform(wall.low, wall.high, count)])
        start = bases[rng.randint(len(bases), size=count)]
        parts.append(region.points(start, fixed, levels, others, reach))
    return np.concatenate(parts)
