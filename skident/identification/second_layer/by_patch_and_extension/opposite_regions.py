"""Two opposite cells of input space with all but one direction's worth of units free: the fullest patches there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

from ..kernel.patch import SATURATED, Patch

__all__ = ["OppositeRegions", "opposite_regions"]

_DIRECTIONS, _LOOKED_AT = 2000, 30  # drawn, and the best ones whose distance is computed in full
_WELL, _ILL = 15.0, 9.0  # condition of free units' weights, and how much farther a worse one may as well be
_WIDEST = 3.8  # pre-activation of free units, at most


@dataclass(frozen=True)
class OppositeRegions:
    """Both cells where given units are free and all others saturated, ``k = D - 1``.

    Attributes
    ----------
    free : ndarray of int, shape (k,)
    others : ndarray of int, shape (m_1 - k,)
    moves : ndarray of shape (k, D)
        The input changes by ``t @ moves`` where the free units' pre-activations change by t.
    points : ndarray of shape (2, D)
        Where free units are at ``t = 0``, one in each cell.
    """

    free: np.ndarray
    others: np.ndarray
    moves: np.ndarray
    points: np.ndarray

    def at(self, T, cells):
        """Inputs at pre-activations of the free units.

        Parameters
        ----------
        T : ndarray of shape (n, k)
        cells : ndarray of int, shape (n,)
            0 or 1.

        Returns
        -------
        ndarray of shape (n, D)
        """
        return self.points[cells] + T @ self.moves

    def patch(self, T):
        """Points at pre-activations of the free units, those in cell 0 first.

        Parameters
        ----------
        T : ndarray of shape (n, k)

        Returns
        -------
        Patch
            Of 2 n points, its levels left open.
        """
        points = np.concatenate([point + T @ self.moves for point in self.points])
        return Patch(self.free, self.others, self.moves, points, np.zeros((len(points), len(self.others))))


def opposite_regions(downstream):
    """The free units whose two cells are near to the centre, ``k = D - 1`` of them.

    Parameters
    ----------
    downstream : Downstream
        With more units than inputs.

    Returns
    -------
    OppositeRegions

    Raises
    ------
    NotIdentified
        If no cells are in reach.

    Notes
    -----
    Free units leave one direction n, along which all others have to be saturated: the distance is the largest
    ``21 / |a_i . n|``. Of many random directions each is replaced by the normal to the D - 1 units that are most
    orthogonal to it, so that no other unit is left that nearly is: a few hundred standard deviations instead of
    thousands.
    """
    W, b, rng = downstream.weights, downstream.biases, downstream.rng
    D, m = W.shape
    drawn = rng.standard_normal((_DIRECTIONS, D))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    sets = np.argsort(np.abs(drawn @ W) / np.sqrt(np.linalg.norm(W, axis=0)), axis=1)[:, : D - 1]
    _, s, Vt = np.linalg.svd(W.T[sets], full_matrices=True)
    normals, conditions = Vt[:, -1], s[:, 0] / np.maximum(s[:, -1], np.finfo(float).tiny)
    rates = np.abs(normals @ W)
    np.put_along_axis(rates, sets, np.inf, axis=1)
    worth = rates.min(axis=1) / np.where(conditions < _WELL, 1.0, _ILL)
    best, nearest = None, downstream.farthest
    for i in np.argsort(-worth)[:_LOOKED_AT]:
        free = np.sort(sets[i])
        others, moves = np.setdiff1d(np.arange(m), free), np.linalg.pinv(W[:, free])
        base = -b[free] @ moves
        levels, along = base @ W[:, others] + b[others], np.abs(normals[i] @ W[:, others])
        sure = SATURATED[downstream.activation] + _WIDEST * np.linalg.norm(moves @ W[:, others], axis=0)
        distance = np.max((sure + np.abs(levels)) / along, initial=0.0)
        if distance < nearest:
            points = base + distance * np.array([[1.0], [-1.0]]) * normals[i]
            best, nearest = OppositeRegions(free, others, moves, points), distance
    if best is None:
        raise NotIdentified("second layer", "unreachable", f"no two cells with {D - 1} free units are in reach")
    return best
