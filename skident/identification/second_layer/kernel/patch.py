"""Patches of input space: points where chosen first-layer units are free and all others are constant."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack

__all__ = ["SATURATED", "Patch", "n_sign_patterns", "rays_of_one_unit", "reach_patch", "saturated"]

# Pre-activation beyond which the activation is constant in float64: 2 exp(-2 * 21) and erfc(6.5) are below 2^-53.
SATURATED = {"tanh": 21.0, "sigmoid": 42.0, "erf": 6.5}
# Standard deviation of pre-activations held constant: they differ from point to point, and few units saturate.
_LEVEL_SD = 1.5
# Condition of first-layer weights up to which all pre-activations are chosen freely: leaves 1e-11 of rounding in them.
_MAX_CONDITION = 1e5
# Same for free and held units alone: these points lie far out, so that less rounding may be added.
_MAX_HELD_CONDITION = 1e3
# Of a free unit: nodes at an output of 0.85, the largest reach, are at artanh(0.85) = 1.26.
_MAX_FREE_PREACTIVATION = 1.3
# Budget of random rays: linear algebra only, no queries. More rays find nearer regions, which have less rounding.
_RAYS_PER_POINT = 200
_MIN_RAYS = 3000  # see _RAYS_PER_POINT
_MAX_RAYS = 20_000  # see _RAYS_PER_POINT
_RAYS_OF_ONE_UNIT = 400  # budget of rays along one unit's hyperplane
_NEAREST_QUANTILE = 0.25  # of these rays, by the distance where all other units saturate; leaves 100 to choose from
_HELD_SETS_PER_POINT = 4  # budget of random sets of held units per missing point: ill-conditioned ones are skipped
_RAYS_PER_HELD_SET = 20  # budget of rays per such set
_NEAR_DISTANCE = 1000.0  # distances below count as equal: rounding there is 1e-13, below the error of the coefficients


def saturated(activation, noise):
    """Pre-activation beyond which a tanh or sigmoid unit is constant up to noise relative to the outputs."""
    of_tanh = 0.5 * np.log(2.0 / noise) if noise > 0 else np.inf
    return min(SATURATED[activation], of_tanh * SATURATED[activation] / SATURATED["tanh"])


@dataclass(frozen=True)
class Patch:
    """Points (n, D) where units `free` (k,) are at z = 0 and units `others` have z = `levels` (n, m_1 - k).

    The input changes by ``t @ moves`` if free pre-activations change by t: (k, D), or (n, k, D) if units are held.
    """

    free: np.ndarray
    others: np.ndarray
    moves: np.ndarray
    points: np.ndarray
    levels: np.ndarray

    @property
    def distance(self):
        """Distance of the farthest point from the origin; infinite for an empty patch."""
        return float(np.linalg.norm(self.points, axis=1).max(initial=0.0)) if len(self.points) else np.inf

    def at(self, T):
        """Inputs (n, q, D) at free pre-activations T (q, k)."""
        return self.points[:, None] + T @ self.moves

    def subset(self, index):
        """The patch restricted to some of its points."""
        moves = self.moves if self.moves.ndim == 2 else self.moves[index]
        return replace(self, moves=moves, points=self.points[index], levels=self.levels[index])

    def outputs(self, activation, corrections):
        """First-layer outputs (n, m_1) at the points, given bias corrections (m_1,)."""
        Z = np.empty((len(self.points), len(corrections)))
        Z[:, self.free], Z[:, self.others] = corrections[self.free], self.levels + corrections[self.others]
        return activation(Z)


def n_sign_patterns(n_inputs, n_units, n_free):
    """Number of sign patterns of saturated units if the free ones are at z = 0, in general position; may be infinite.

    These are the regions between ``m_1 - k`` hyperplanes through the origin of ``R^(D - k)``. It is infinite if all
    pre-activations can be chosen, since then the other units need not be saturated.
    """
    if n_units <= n_inputs:
        return np.inf if n_units > n_free else 1.0
    codimension, others = n_inputs - n_free, n_units - n_free
    total, term = 0.0, 1.0
    for j in range(codimension):
        total += term
        term *= (others - 1 - j) / (j + 1)
    return 2.0 * total


def reach_patch(weights, biases, free, n_points, rng, *, margin=SATURATED["tanh"], farthest=3e4):
    """A patch with given free units, near the origin, of up to `n_points` points; others have ``|z| >= margin``.

    With ``m_1 <= D`` all pre-activations can be chosen, and the other units are constant at random levels. Otherwise
    the points are ``x_0 + R N r`` with R as small as possible, N a basis of the directions that leave free units
    unchanged and r random. If these have too few sign patterns, as with m_1 just above D, some others are held at
    random levels and the remaining ones are saturated.
    """
    free, (D, m) = np.asarray(free), weights.shape
    others = np.setdiff1d(np.arange(m), free)
    if m <= D and len(others) and lapack.cond(weights) < _MAX_CONDITION:
        inverse = lapack.pinv(weights)
        Z = np.zeros((n_points, m))
        Z[:, others] = _LEVEL_SD * rng.standard_normal((n_points, len(others)))
        return Patch(free, others, inverse[free], (Z - biases) @ inverse, Z[:, others])
    moves = lapack.pinv(weights[:, free])
    base = -biases[free] @ moves
    if len(others) == 0:
        return Patch(free, others, moves, base[None], np.zeros((1, 0)))
    n_rays = int(np.clip(_RAYS_PER_POINT * n_points, _MIN_RAYS, _MAX_RAYS))
    margins = margin + _MAX_FREE_PREACTIVATION * np.linalg.norm(moves @ weights[:, others], axis=0)
    rays, steps, signs = _saturating_rays(weights, biases, free, margins, n_rays, rng)
    order = np.argsort(steps)
    order = order[steps[order] <= farthest]
    chosen = order[_first_of_each(np.packbits(signs[order] > 0, axis=1), n_points)]
    points = base + steps[chosen, None] * rays[chosen]
    n_missing = n_points - len(points)
    if n_missing > 0 and D - len(free) > 1:
        held, held_moves = _points_with_held_units(weights, biases, free, n_missing, rng, margin, farthest)
        moves = np.concatenate([np.tile(moves, (len(points), 1, 1)), held_moves])
        points = np.concatenate([points, held])
    return Patch(free, others, moves, points, points @ weights[:, others] + biases[others])


def _points_with_held_units(weights, biases, free, n, rng, margin, farthest):
    """Points (n, D) with some units held at random levels and the rest saturated, and moves (n, k, D) of free units."""
    (D, m), k = weights.shape, len(free)
    others = np.setdiff1d(np.arange(m), free)
    points, moves, distances = [np.zeros((0, D))], [np.zeros((0, k, D))], [np.zeros(0)]
    for _ in range(_HELD_SETS_PER_POINT * n):
        held = rng.permutation(others)[: rng.randint(1, D - k)]
        fixed = np.append(free, held)
        if lapack.cond(weights[:, fixed]) > _MAX_HELD_CONDITION:
            continue
        shifted = biases.copy()
        shifted[held] -= _LEVEL_SD * rng.standard_normal(len(held))
        inverse = lapack.pinv(weights[:, fixed])
        rest = np.setdiff1d(others, held)
        margins = margin + _MAX_FREE_PREACTIVATION * np.linalg.norm(inverse[:k] @ weights[:, rest], axis=0)
        rays, steps, _ = _saturating_rays(weights, shifted, fixed, margins, _RAYS_PER_HELD_SET, rng)
        nearest = np.argmin(steps)
        points.append((-shifted[fixed] @ inverse + steps[nearest] * rays[nearest])[None])
        moves.append(inverse[None, :k])
        distances.append(steps[nearest, None])
    points, moves, distances = (np.concatenate(part) for part in (points, moves, distances))
    # Near ones in the order in which they were drawn, which are as different as possible; then by distance.
    order = np.argsort(np.maximum(distances, _NEAR_DISTANCE), kind="stable")[:n]
    chosen = order[distances[order] <= farthest]
    return points[chosen], moves[chosen]


def _first_of_each(codes, n):
    """Positions of the first n different rows."""
    first = {}
    for i, code in enumerate(codes):
        first.setdefault(code.tobytes(), i)
        if len(first) == n:
            break
    return np.array(list(first.values()), dtype=int)


def rays_of_one_unit(weights, biases, unit, n_rays, rng, *, margin=SATURATED["tanh"], farthest=3e4):
    """Up to `n_rays` rays along a unit's hyperplane: its foot (D,), unit vectors (n, D), distances (n,).

    Beyond its distance from the foot, all other units on a ray have ``|z| >= margin``.
    """
    w = weights[:, unit]
    rays, steps, _ = _saturating_rays(weights, biases, np.array([unit]), margin, _RAYS_OF_ONE_UNIT, rng)
    near = np.flatnonzero(steps <= min(np.quantile(steps, _NEAREST_QUANTILE), farthest))
    chosen = near[rng.permutation(len(near))[:n_rays]]
    return -biases[unit] * w / (w @ w), rays[chosen], steps[chosen]


def _saturating_rays(weights, biases, fixed, margin, n_rays, rng):
    """Random unit vectors (n, D) that leave fixed units unchanged, steps that saturate all others, and their signs."""
    others = np.setdiff1d(np.arange(weights.shape[1]), fixed)
    base = -biases[fixed] @ lapack.pinv(weights[:, fixed])
    along = lapack.qr(weights[:, fixed], mode="complete")[0][:, len(fixed) :]
    d = along.shape[1]
    rays = np.array([[1.0], [-1.0]])[:, :d] if d < 2 else rng.standard_normal((n_rays, d))
    rays = (rays / np.linalg.norm(rays, axis=1, keepdims=True)) @ along.T if d else np.zeros((0, len(weights)))
    levels, rates = base @ weights[:, others] + biases[others], rays @ weights[:, others]
    signs = np.sign(rates)
    with np.errstate(divide="ignore"):
        steps = np.max((margin - signs * levels) / np.abs(rates), axis=1, initial=0.0)
    return rays, steps, signs
