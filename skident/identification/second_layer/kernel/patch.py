"""Patches of input space: some first-layer units are free there, and all others stand still."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

__all__ = ["SATURATED", "Patch", "n_sign_patterns", "rays_of_one_unit", "reach_patch"]

SATURATED = {"tanh": 21.0, "sigmoid": 42.0, "erf": 6.5}  # |z| from which on the activation is constant in float64
_LEVELS = 1.5  # standard deviation of pre-activations that stand still where all of them can be chosen
_TRIES = 200, 3000, 20_000  # rays looked at for near cells: times the points wanted, at least, and at most
_RAYS = 400  # of one free unit
_NEAREST = 0.25  # part of the rays of one unit that are taken, those where all others are saturated soon
_WELL_POSED = 1e5  # condition of the weights up to which all pre-activations can be chosen
_HELD, _RAYS_HELD = 4, 20  # sets of units that are held looked at, times the points wanted, and rays along each
_NEAR = 1000.0  # distance up to which one of these is as good as another
_WELL_HELD = 1e3  # condition of the weights of free units and those held at levels
_MOVED = 1.3  # pre-activation of a free unit, at most


@dataclass(frozen=True)
class Patch:
    """Points at which free units are at ``t = 0``, each with its own level of all others, and how to move from there.

    Attributes
    ----------
    free : ndarray of int, shape (k,)
    others : ndarray of int, shape (m_1 - k,)
    moves : ndarray of shape (k, D) or (n, k, D)
        The input changes by ``t @ moves`` where the free units' pre-activations change by t; at every point in its own
        way where units are held at levels.
    points : ndarray of shape (n, D)
    levels : ndarray of shape (n, m_1 - k)
        Pre-activations of the other units: large where these are saturated.
    """

    free: np.ndarray
    others: np.ndarray
    moves: np.ndarray
    points: np.ndarray
    levels: np.ndarray

    @property
    def distance(self):
        """Of the farthest point from the origin; infinite where there is no point."""
        return float(np.linalg.norm(self.points, axis=1).max(initial=0.0)) if len(self.points) else np.inf

    def at(self, T):
        """Inputs at pre-activations T of the free units.

        Parameters
        ----------
        T : ndarray of shape (q, k)

        Returns
        -------
        ndarray of shape (n, q, D)
        """
        return self.points[:, None] + T @ self.moves

    def some(self, index):
        """The same at some of the points.

        Parameters
        ----------
        index : ndarray of int

        Returns
        -------
        Patch
        """
        moves = self.moves if self.moves.ndim == 2 else self.moves[index]
        return replace(self, moves=moves, points=self.points[index], levels=self.levels[index])

    def outputs(self, activation, shifts):
        """First-layer outputs at the points.

        Parameters
        ----------
        activation : Activation
        shifts : ndarray of shape (m_1,)
            What is to be added to the pre-activations as known.

        Returns
        -------
        ndarray of shape (n, m_1)
        """
        Z = np.empty((len(self.points), len(shifts)))
        Z[:, self.free], Z[:, self.others] = shifts[self.free], self.levels + shifts[self.others]
        return activation(Z)


def n_sign_patterns(n_inputs, n_units, n_free):
    """In how many ways all units but some can be saturated where these are at 0, in general position.

    Parameters
    ----------
    n_inputs, n_units, n_free : int
        D, m_1 and k.

    Returns
    -------
    float
        Cells of an arrangement of ``m_1 - k`` hyperplanes through the origin of ``R^(D - k)``. Infinite where all
        pre-activations can be chosen, and the other units need not be saturated.
    """
    if n_units <= n_inputs:
        return np.inf if n_units > n_free else 1.0
    codimension, others = n_inputs - n_free, n_units - n_free
    total, term = 0.0, 1.0
    for j in range(codimension):
        total += term
        term *= (others - 1 - j) / (j + 1)
    return 2.0 * total


def reach_patch(weights, biases, free, n_patterns, rng, *, margin=SATURATED["tanh"], farthest=3e4):
    """A patch with given free units, as near to the centre as can be.

    Parameters
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
    free : array-like of int, shape (k,)
        ``k <= D``.
    n_patterns : int
        Points wanted, each with other signs of the saturated units.
    rng : numpy.random.RandomState
    margin : float, default=21
        Least ``|z|`` of a saturated unit.
    farthest : float, default=3e4
        Largest distance from the points nearest to the centre: rounding grows with it.

    Returns
    -------
    Patch
        With fewer points where there are no more in reach.

    Notes
    -----
    With ``m_1 <= D`` every pre-activation can be chosen, and the other units stand still at random levels, not
    saturated. Otherwise the points are ``x_0 + R N r``, N a basis of the directions that leave the free units alone, r
    random, R the least that saturates all others. Where these have too few signs, as with ``m_1`` little above D, some
    others are held at random levels, and the rest is saturated along directions that leave these alone too.
    """
    free = np.asarray(free)
    others = np.setdiff1d(np.arange(weights.shape[1]), free)
    D, m = weights.shape
    if m <= D and len(others) and np.linalg.cond(weights) < _WELL_POSED:
        inverse = np.linalg.pinv(weights)
        levels = _LEVELS * rng.standard_normal((n_patterns, len(others)))
        Z = np.zeros((n_patterns, m))
        Z[:, others] = levels
        return Patch(free, others, inverse[free], (Z - biases) @ inverse, levels)
    moves = np.linalg.pinv(weights[:, free])
    base = -biases[free] @ moves
    if len(others) == 0:
        return Patch(free, others, moves, base[None], np.zeros((1, 0)))
    n_tries = int(np.clip(_TRIES[0] * n_patterns, *_TRIES[1:]))
    sure = margin + _MOVED * np.linalg.norm(moves @ weights[:, others], axis=0)
    along, steps, signs = _saturating_rays(weights, biases, free, sure, n_tries, rng)
    order = np.argsort(steps)
    order = order[steps[order] <= farthest]
    chosen = order[_first_of_each(np.packbits(signs[order] > 0, axis=1), n_patterns)]
    points = base + steps[chosen, None] * along[chosen]
    lacking = n_patterns - len(points)
    if lacking > 0 and D - len(free) > 1:
        held, ways = _held_at_levels(weights, biases, free, lacking, rng, margin, farthest)
        points, moves = np.concatenate([points, held]), np.concatenate([np.tile(moves, (len(points), 1, 1)), ways])
    return Patch(free, others, moves, points, points @ weights[:, others] + biases[others])


def _held_at_levels(weights, biases, free, n, rng, margin, farthest):
    """Points (n, D) where some other units are held at levels and the rest is saturated, and moves (n, k, D) there."""
    (D, m), k = weights.shape, len(free)
    others = np.setdiff1d(np.arange(m), free)
    points, moves, found = [np.zeros((0, D))], [np.zeros((0, k, D))], [np.zeros(0)]
    for _ in range(_HELD * n):
        held = rng.permutation(others)[: rng.randint(1, D - k)]
        still = np.append(free, held)
        if np.linalg.cond(weights[:, still]) > _WELL_HELD:
            continue
        levels = biases.copy()
        levels[held] -= _LEVELS * rng.standard_normal(len(held))
        ways = np.linalg.pinv(weights[:, still])
        rest = np.setdiff1d(others, held)
        sure = margin + _MOVED * np.linalg.norm(ways[:k] @ weights[:, rest], axis=0)
        along, steps, _ = _saturating_rays(weights, levels, still, sure, _RAYS_HELD, rng)
        nearest = np.argmin(steps)
        points.append((-levels[still] @ ways + steps[nearest] * along[nearest])[None])
        moves.append(ways[None, :k])
        found.append(steps[nearest, None])
    points, moves, found = (np.concatenate(part) for part in (points, moves, found))
    # The first ones in reach are as different as they come; farther ones only where these are too few.
    order = np.argsort(np.maximum(found, _NEAR), kind="stable")[:n]
    chosen = order[found[order] <= farthest]
    return points[chosen], moves[chosen]


def _first_of_each(codes, n):
    """Where the first n different rows appear, in their order."""
    seen, found = set(), []
    for i, code in enumerate(codes):
        key = code.tobytes()
        if key not in seen:
            seen.add(key)
            found.append(i)
            if len(found) == n:
                break
    return np.array(found, dtype=int)


def rays_of_one_unit(weights, biases, unit, n_rays, rng, *, margin=SATURATED["tanh"], farthest=3e4):
    """Rays along a unit's hyperplane, each from where all other units begin to be saturated.

    Parameters
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
    unit : int
    n_rays : int
        Rays wanted, several of them perhaps in one cell.
    rng : numpy.random.RandomState
    margin : float, default=21
        Least ``|z|`` of a saturated unit.
    farthest : float, default=3e4
        Where a ray has to begin.

    Returns
    -------
    base : ndarray of shape (D,)
        The hyperplane's point nearest to the origin.
    rays : ndarray of shape (n, D)
        Unit vectors; fewer than wanted where there are no more in reach.
    starts : ndarray of shape (n,)
        All other units are saturated at ``base + R ray`` for ``R >= start``.
    """
    w = weights[:, unit]
    rays, steps, _ = _saturating_rays(weights, biases, np.array([unit]), margin, _RAYS, rng)
    near = np.flatnonzero(steps <= min(np.quantile(steps, _NEAREST), farthest))
    chosen = near[rng.permutation(len(near))[:n_rays]]
    return -biases[unit] * w / (w @ w), rays[chosen], steps[chosen]


def _saturating_rays(weights, biases, free, margin, n_rays, rng):
    """Random unit vectors (n, D) that leave the free units alone, the step that saturates all others, their signs."""
    others = np.setdiff1d(np.arange(weights.shape[1]), free)
    base = -biases[free] @ np.linalg.pinv(weights[:, free])
    along = np.linalg.qr(weights[:, free], mode="complete")[0][:, len(free) :]
    d = along.shape[1]
    rays = np.array([[1.0], [-1.0]])[:, :d] if d < 2 else rng.standard_normal((n_rays, d))
    rays = (rays / np.linalg.norm(rays, axis=1, keepdims=True)) @ along.T if d else np.zeros((0, len(weights)))
    levels, rates = base @ weights[:, others] + biases[others], rays @ weights[:, others]
    signs = np.sign(rates)
    with np.errstate(divide="ignore"):
        steps = np.max((margin - signs * levels) / np.abs(rates), axis=1, initial=0.0)
    return rays, steps, signs
