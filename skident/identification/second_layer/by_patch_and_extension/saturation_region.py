"""Points of a cell and of its walls: known units anywhere, one more on the move, all others saturated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernel.patch import SATURATED

__all__ = ["Cell", "Wall", "spread_points"]

_FURTHER = 2.0  # pre-activation beyond saturation: shifts are not known yet
_OUTPUTS = 0.97  # of known units that move, at most
_RAYS = 24  # along which a point may be moved: random ones, ones near the base's direction, ones towards other bases
_TURNS = (0.1, 3.0)  # of a ray from the base's direction
_FAR = 0.3  # part of the largest distance up to which points are moved without need, half of them
_DEPENDENT = 1e-2  # part of a weight vector outside the span of others, below which units are not moved together
_ALONG = 1e-12  # rate of a pre-activation that is none


@dataclass(frozen=True)
class Wall:
    """A unit's hyperplane, and pre-activations on both sides of it.

    Attributes
    ----------
    unit : int
    low, high : float
        Its pre-activation at the points.
    reach : float, default=0
        How far this is to be changed from there, the cell's other units staying saturated.
    """

    unit: int
    low: float
    high: float
    reach: float = 0.0


@dataclass(frozen=True)
class Cell:
    """Where all units that are not known are saturated at given signs, whatever known ones do.

    Attributes
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
        Up to shifts of 2.
    signs : ndarray of shape (m_1,)
        Of all units that are not known; of others they do not matter.
    activation : {"tanh", "erf"}
    farthest : float
        Largest distance of points from the origin.
    """

    weights: np.ndarray
    biases: np.ndarray
    signs: np.ndarray
    activation: str
    farthest: float

    @property
    def margin(self):
        """Least ``|t|`` of a saturated unit."""
        return SATURATED[self.activation] + _FURTHER

    def points(self, bases, still, levels, others, rng, reach=0.0):
        """Points with given pre-activations of some units, the others in the cell, from base points.

        Parameters
        ----------
        bases : ndarray of shape (n, D)
        still : ndarray of int, shape (n, q)
            Units whose pre-activations are given, ``q <= D``.
        levels : ndarray of shape (n, q)
        others : ndarray of int, shape (u,)
            Units that have to be saturated.
        rng : numpy.random.RandomState
        reach : float, default=0
            How far the last of the units, which leave the others alone, may be moved within the cell.

        Returns
        -------
        ndarray of shape (n', D)
            Of those for which any of a few rays shows one; each is the foot of its base point moved along one.
        """
        q = still.shape[1]
        A = np.moveaxis(self.weights[:, still], 0, 1)
        Q, R = np.linalg.qr(A, mode="complete")
        R, span = R[:, :q], Q[:, :, :q]
        sizes = np.abs(np.diagonal(R, axis1=1, axis2=2)) / np.linalg.norm(A, axis=1)
        well = np.flatnonzero(sizes.min(axis=1, initial=1.0) > _DEPENDENT)
        R, span, bases, A = np.swapaxes(R[well], 1, 2), span[well], bases[well], A[well]
        lacking = levels[well] - self.biases[still[well]] - np.einsum("nd,ndq->nq", bases, A)
        feet = bases + (span @ np.linalg.solve(R, lacking[..., None]))[..., 0]
        last = np.broadcast_to(np.eye(q)[:, -1:] if q else np.zeros((0, 1)), (len(R), q, 1))
        moves = (span @ np.linalg.solve(R, last))[..., 0]
        rays = _rays(bases, span, rng)
        lowest, highest = self._within(feet, rays, others, reach * np.abs(moves @ self.weights[:, others]))
        wanted = np.exp(rng.uniform(0.0, np.log(_FAR * self.farthest), lowest.shape))
        steps = np.clip(np.where(rng.uniform(size=lowest.shape) < 0.5, wanted, 0.0), lowest, highest)
        points = feet[:, None] + np.where(np.isfinite(steps), steps, 0.0)[..., None] * rays
        serves = (lowest <= highest) & (np.linalg.norm(points, axis=2) <= self.farthest)
        chosen = np.argmax(serves * rng.uniform(0.1, 1.0, serves.shape), axis=1)
        found = np.flatnonzero(serves[np.arange(len(well)), chosen])
        return points[found, chosen[found]]

    def _within(self, feet, rays, others, more):
        """Least and largest steps (n, r) along rays (n, r, D) from feet (n, D) within the cell, and more by (n, u)."""
        signs, W = self.signs[others], self.weights[:, others]
        levels = (signs * (feet @ W + self.biases[others]) - more)[:, None] - self.margin
        rates = signs * (rays @ W)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = -levels / rates
        lowest = np.max(np.where(rates > _ALONG, ends, -np.inf), axis=2, initial=-np.inf)
        highest = np.min(np.where(rates < -_ALONG, ends, np.inf), axis=2, initial=np.inf)
        out = np.any((np.abs(rates) <= _ALONG) & (levels < 0.0), axis=2)
        return np.where(out, np.inf, lowest), np.where(out, -np.inf, highest)

    def crossings(self, points, wall, known, others):
        """How points are moved across a wall with all other units standing still.

        Parameters
        ----------
        points : ndarray of shape (n, D)
        wall : Wall
        known : ndarray of int, shape (k,)
            Units that are wherever they are.
        others : ndarray of int, shape (u,)
            Units that have to stay saturated as in the cell.

        Returns
        -------
        points : ndarray of shape (n', D)
            Those that can be moved.
        moves : ndarray of shape (n', D)
            What changes the wall unit's pre-activation by 1.
        """
        w, levels = self.weights[:, wall.unit], points @ self.weights + self.biases
        near = np.abs(levels[:, known]) < self.margin + wall.reach
        A = self.weights[:, known] * near[:, None]
        moves = w - (A @ (np.linalg.pinv(A, rcond=1e-10) @ w)[..., None])[..., 0]
        gains = moves @ w
        well = gains > _DEPENDENT**2 * (w @ w)
        moves = moves / np.where(well, gains, 1.0)[:, None]
        change = np.abs(moves @ self.weights) * wall.reach
        still = np.all(near | (np.abs(levels[:, known]) - change[:, known] > self.margin), axis=1)
        inside = np.all(self.signs[others] * levels[:, others] - change[:, others] > SATURATED[self.activation], axis=1)
        chosen = np.flatnonzero(well & still & inside)
        return points[chosen], moves[chosen]


def _rays(bases, span, rng):
    """Unit vectors (n, r, D) across spans (n, D, q): random, near the bases' directions, towards other bases."""
    n, D, q = span.shape
    if q == D:
        return np.zeros((n, 1, D))
    third = _RAYS // 3
    random = rng.standard_normal((n, third, D))
    lengths = np.linalg.norm(bases, axis=1)[:, None, None]
    turns = np.exp(rng.uniform(*np.log(_TURNS), (n, third, 1))) / np.sqrt(D)
    near = bases[:, None] + lengths * turns * rng.standard_normal((n, third, D))
    towards = bases[rng.randint(n, size=(n, third))] - bases[:, None] if n else random
    rays = np.concatenate([random, near, towards], axis=1)
    rays -= (rays @ span) @ np.swapaxes(span, 1, 2)
    return rays / np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), np.finfo(float).tiny)


def spread_points(cell, known, others, bases, n, rng, wall=None):
    """Points of a cell, or on one of its walls, where as many known units move as one likes.

    Parameters
    ----------
    cell : Cell
    known : KnownUnits
    others : ndarray of int, shape (u,)
        Units that have to be saturated.
    bases : ndarray of shape (p, D)
        Points of the cell to begin from.
    n : int
        Points tried for.
    rng : numpy.random.RandomState
    wall : Wall, default=None

    Returns
    -------
    ndarray of shape (n', D)
        ``n' <= n``.

    Notes
    -----
    Random known units, from none to D (less the wall's), are given outputs uniform in (-.97, .97) by the least move
    from a base point; then the point is moved along a random line that leaves these alone until all others are
    saturated.
    """
    D, reach = len(cell.weights), 0.0 if wall is None else wall.reach
    most = min(D if wall is None else D - 1, len(known.units))
    sizes, parts = rng.randint(most + 1, size=n), [np.zeros((0, D))]
    for q in np.unique(sizes):
        count = int(np.sum(sizes == q))
        chosen = np.argsort(rng.uniform(size=(count, len(known.units))), axis=1)[:, :q]
        levels = known.levels(rng.uniform(-_OUTPUTS, _OUTPUTS, (count, q)), chosen)
        still = known.units[chosen]
        if wall is not None:
            still = np.column_stack([still, np.full(count, wall.unit)])
            levels = np.column_stack([levels, rng.uniform(wall.low, wall.high, count)])
        begin = bases[rng.randint(len(bases), size=count)]
        parts.append(cell.points(begin, still, levels, others, rng, reach))
    return np.concatenate(parts)
