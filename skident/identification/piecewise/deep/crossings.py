"""Walks along the known part of a unit's kink, to the boundaries behind which it is not known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernel.lines import Table

__all__ = ["Crossings", "crossings"]

_NO_SLOPE = 1e-8


@dataclass(frozen=True)
class Crossings(Table):
    """Where walks along the known part of a unit's kink came to a boundary that they cannot cross unseen.

    Attributes
    ----------
    points : ndarray of shape (c, D)
        On the kink and on the boundary.
    boundary : ndarray of int, shape (c,)
        The known unit whose boundary it is.
    outwards : ndarray of shape (c, D)
        Unit normals of the boundaries, pointing across.
    slopes : ndarray of shape (c, D)
        Gradient of the unit before the boundary.
    rows : ndarray of shape (c, T)
        Change of the features' slope along `outwards`: its product with theta is what the gradient changes by.
    room : ndarray of shape (c,)
        Distance from other boundaries behind it.
    """

    points: np.ndarray
    boundary: np.ndarray
    outwards: np.ndarray
    slopes: np.ndarray
    rows: np.ndarray
    room: np.ndarray


def crossings(unit, rng, *, n_walks=60, n_steps=12, reach=8.0):
    """Walk along the known part of a unit's kink, without questions, to boundaries behind which it is not known.

    Parameters
    ----------
    unit : FacetUnit
    rng : numpy.random.RandomState
    n_walks : int, default=60
        In random directions; most of them lean towards units whose weight is not determined.
    n_steps : int, default=12
        Known boundaries crossed at most.
    reach : float, default=8.0
        In units of ``sqrt(D)``.

    Returns
    -------
    Crossings

    Notes
    -----
    ``O(n_walks n_steps M (D + m_l))`` operations, memory ``O(n_walks (M + T) D)``.
    """
    known, D = unit.known, unit.known.n_inputs
    x = unit.starts[rng.randint(len(unit.starts), size=n_walks)]
    Z = known.evaluate(x)[0]
    walk, found = _Walks(x, Z, Z > 0, _first_directions(unit, x, Z, Z > 0, rng), np.full(n_walks, -1)), []
    for _ in range(n_steps):
        if len(walk.x) == 0:
            break
        walk, slopes = _to_boundary(unit, walk, reach * np.sqrt(D))
        before, rows, k = walk.active, np.arange(len(walk.x)), walk.last
        beyond = before.copy()
        beyond[rows, k] = ~beyond[rows, k]
        normals = known.boundary_normals(before, k)
        lengths = np.linalg.norm(normals, axis=1)
        outwards = normals / np.maximum(lengths, 1e-300)[:, None]
        change = known.tangents(beyond, outwards)[1] - known.tangents(before, outwards)[1]
        size = np.maximum(1.0, np.abs(change).max(axis=1, initial=0.0))
        unknown = np.abs(change @ unit.open).max(axis=1, initial=0.0) > unit.tolerance * size
        i = np.flatnonzero(unknown & (lengths > 1e-9))
        # Outwards: away from the side that was left.
        side = np.where(beyond[rows, k], 1.0, -1.0)[i, None]
        room = _rooms(known, walk.Z[i], beyond[i], k[i])
        found.append(Crossings(walk.x[i], k[i], side * outwards[i], slopes[i], side * change[i], room))
        walk = _Walks(walk.x, walk.Z, beyond, walk.u, k).take(~unknown)
    return Crossings.stacked(found)


@dataclass
class _Walks(Table):
    """Points x, pre-activations Z there, cells, directions u, and the boundaries last met."""

    x: np.ndarray
    Z: np.ndarray
    active: np.ndarray
    u: np.ndarray
    last: np.ndarray


def _to_boundary(unit, walk, reach):
    """Straight on along the unit's kink to the next boundary, of walks that meet one within reach; the slopes."""
    g = unit.known.gradients(walk.active, unit.theta)
    size = np.sum(g**2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = walk.u - (np.sum(walk.u * g, axis=1) / size)[:, None] * g
        u /= np.linalg.norm(u, axis=1, keepdims=True)
    dZ = unit.known.tangents(walk.active, np.nan_to_num(u))[0]
    alive, rows, behind = (size > _NO_SLOPE**2) & np.isfinite(u).all(axis=1), np.arange(len(u)), walk.last >= 0
    alive &= ~behind | (dZ[rows, walk.last] * np.where(walk.active[rows, walk.last], 1.0, -1.0) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -walk.Z / dZ
    t[((walk.Z > 0) != walk.active) & (np.abs(walk.Z) < 1e-9)] = np.inf
    t[rows[behind], walk.last[behind]] = np.inf
    t[~(t > 0)] = np.inf
    k = t.argmin(axis=1)
    step = t[rows, k]
    alive &= np.isfinite(step)
    step = np.where(alive, step, 0.0)[:, None]
    x, Z = walk.x + step * np.nan_to_num(u), walk.Z + step * dZ
    Z[rows, k] = 0.0
    alive &= np.linalg.norm(x, axis=1) < reach
    return _Walks(x, Z, walk.active, u, k).take(alive), g[alive]


def _first_directions(unit, x, Z, active, rng):
    """Random directions, most of them leaning towards a boundary of layer l across which the weight is open."""
    known = unit.known
    u = rng.standard_normal(x.shape)
    aims = unit.open_boundaries()
    if len(aims) == 0:
        return u
    aim = rng.choice(aims, len(x))
    normals = known.boundary_normals(active, aim)
    size = np.linalg.norm(normals, axis=1)
    towards = -np.sign(Z[np.arange(len(x)), aim])[:, None] * normals / np.maximum(size, 1e-300)[:, None]
    leaning = (rng.uniform(size=len(x)) < 0.5) & (size > 1e-9)
    return np.where(leaning[:, None], 0.4 * u + np.sqrt(known.n_inputs) * towards, u)


def _rooms(known, Z, active, k):
    """Distances of points from all boundaries but one, in the cells behind it."""
    lengths = known.boundary_slopes(active)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(lengths > 1e-9, np.abs(Z) / lengths, np.inf)
    distances[np.arange(len(k)), k] = np.inf
    return distances.min(axis=1)
