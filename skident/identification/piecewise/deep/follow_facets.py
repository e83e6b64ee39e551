"""Learning a unit's facets: one short line beyond every boundary that its kink runs into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline

from ..kernel.lines import Segments
from ..kernel.locate import WINDOW_ERRORS, locate, scan_segments, window_widths
from ..kernel.robust_fit import NOISY
from .crossings import crossings

__all__ = ["KinksSeen", "kinks_seen", "learn_positions", "share_of_kinks", "share_of_sides", "trace"]

_MOST_AT_ONCE = 8  # boundaries looked behind at a time
_MISFIT = 1e-5  # relative violation of an equation that no unit of this layer shows
_ROUGHLY = 0.1  # of a wide window, how near predicted kinks must be while tracing
_TESTED, _LEAST = 16, 0.3  # predicted kinks looked at while tracing, and the share that must be there
_LEAST_ROOM = 1e-3
_STEEPEST = 1e6  # change of a slope at a boundary, over the slope before it
_ON_A_SIDE, _POOL = 6, 6  # kinks on a side of a unit that tell anything; predicted ones for one looked at
_WINDOW, _NEAR = 0.005, 2e-3  # of the room behind a boundary; of a window, how near a predicted kink must be


def trace(probe, unit, rng, *, n_rounds=40, patience=6, hasty=True):
    """Follow a unit's kink across boundaries of the known layers until theta is determined, or nothing more is found.

    Behind a boundary with unit normal o the gradient is ``g + gamma o``: one unknown, which the kink on one short line
    gives. A line may show other kinks: only that is taken whose facet shows at two more of three points; these are on
    the unit's kink to rounding, ``phi . theta = 0``, so that errors do not grow from one boundary to the next.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
        Takes up what is learnt.
    rng : numpy.random.RandomState
    n_rounds : int, default=40
    patience : int, default=6
        Rounds without anything learnt after which it ends.
    hasty : bool, default=True
        Whether two such rounds are enough where nothing was learnt at all.

    Returns
    -------
    bool
        Whether it may be a unit of the next layer.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    About 25 queries a boundary, and 40 to 80 to look whether predicted kinks are there.
    """
    idle, failed, learnt, seen, hits = 0, {}, 0, 0, 0.0
    for _ in range(n_rounds):
        if unit.n_open == 0:
            break
        check_deadline()
        chosen = _best_crossings(crossings(unit, rng), failed)
        before = unit.n_open
        if len(chosen):
            _look_behind(probe, unit, chosen, failed, rng)
        progress = before - unit.n_open
        learnt += progress
        idle = 0 if progress else idle + 1
        if unit.misfit > _MISFIT:
            return False
        if progress and seen < _TESTED:
            share, n = share_of_kinks(probe, unit, rng, 8, near=_ROUGHLY * window_widths(probe)[0])
            seen, hits = seen + n, hits + n * share
            if seen >= 8 and hits < _LEAST * seen:
                return False
        if idle >= (2 if hasty and learnt == 0 else patience):
            break
        if idle == 2:
            unit.start_near_boundaries(rng)
    return True


def _best_crossings(found, failed):
    """The roomiest crossing of every boundary, those first that did not fail before."""
    D = found.points.shape[1]
    quality = found.room.clip(max=1.0) / (1.0 + np.linalg.norm(found.points, axis=1) / np.sqrt(D))
    quality *= 0.6 ** np.array([failed.get(k, 0) for k in found.boundary])
    order = np.argsort(-quality)
    order = order[found.room[order] > _LEAST_ROOM]
    first = np.unique(found.boundary[order], return_index=True)[1]
    return found.take(order[np.sort(first)][:_MOST_AT_ONCE])


def _look_behind(probe, unit, c, failed, rng):
    """Ask behind boundaries; kinks that are confirmed are taken up by the unit, and counts of failures are kept."""
    for k in c.boundary:
        failed[k] = failed.get(k, 0) + 1
    room = c.room.clip(max=1.0)
    ahead = room * (0.04 if probe.resolution < 1e-11 else 0.2)
    along = c.slopes - np.sum(c.slopes * c.outwards, axis=1)[:, None] * c.outwards
    size = np.linalg.norm(along, axis=1)
    i = np.flatnonzero(size > 1e-6 * np.linalg.norm(c.slopes, axis=1))
    if len(i) == 0:
        return
    c, room, ahead = c.take(i), room[i], ahead[i]
    lines = Segments(c.points + ahead[:, None] * c.outwards, along[i] / size[i, None], -0.9 * room, 0.9 * room)
    line, t = scan_segments(probe, lines, rng)
    Y = lines.at(line, t)
    fresh = ~unit.known.on_known_kinks(Y)
    line, Y = line[fresh], Y[fresh]
    if len(line) == 0:
        return
    offset = Y - c.points[line]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gamma = -np.sum(c.slopes[line] * offset, axis=1) / np.sum(c.outwards[line] * offset, axis=1)
    moderate = np.abs(gamma) < _STEEPEST * np.linalg.norm(c.slopes[line], axis=1)
    line, Y, gamma = line[moderate], Y[moderate], gamma[moderate]
    if len(line) == 0:
        return
    blur = unit.errors_at(c.points - 1e-3 * room[:, None] * c.outwards)[1]
    behind = (c.take(line), Y, gamma, room[line], blur[line], WINDOW_ERRORS * unit.faintness)
    good, gamma, P, errors = _followed(probe, *behind, rng)
    good = good[np.unique(line[good], return_index=True)[1]]
    if len(good) == 0:
        return
    for k in c.boundary[line[good]]:
        failed[k] = 0
    learn_positions(unit, P[good].reshape(-1, P.shape[2]), errors[good].ravel())


def learn_positions(unit, points, errors):
    """Take up that kinks at some points are the unit's.

    Parameters
    ----------
    unit : FacetUnit
    points : ndarray of shape (n, D)
    errors : ndarray of shape (n,)
        Of the positions across the kink; infinite where there is none.
    """
    there = np.isfinite(errors)
    points, errors = points[there], errors[there]
    Z, phi = unit.known.evaluate(points)
    slopes = np.linalg.norm(unit.known.gradients(Z > 0, unit.theta), axis=1)
    unit.learn(phi, np.zeros(len(phi)), points, errors * np.maximum(slopes, 1.0))


def _followed(probe, c, points, gamma, room, blur, least, rng):
    """Which facets behind boundaries show at two of three points far from these, what gamma is by those, and these.

    The farther from the boundary, the more exactly the facet's slope is told.
    """
    n, D = points.shape
    facing = c.slopes + gamma[:, None] * c.outwards
    unit = facing / np.linalg.norm(facing, axis=1, keepdims=True)
    away = rng.standard_normal((n, 3, D))
    away -= np.sum(away * unit[:, None], axis=2, keepdims=True) * unit[:, None]
    away /= np.linalg.norm(away, axis=2, keepdims=True)
    across = np.sum(away * c.outwards[:, None], axis=2, keepdims=True)
    away, across = np.where(across < 0, -away, away), np.abs(across)
    # Along the facet from the boundary: as far as there is room, leaning away from it.
    start = c.points[:, None] + np.zeros_like(away)
    P = start + 0.6 * room[:, None, None] * away
    blur = 2.0 * blur * room
    width = np.maximum(_WINDOW * room, np.minimum(0.1 * room, 300.0 * probe.resolution + 3.0 * blur))
    width = np.maximum(width, np.minimum(least, 0.2 * room))
    width, blur = np.repeat(width, 3), np.repeat(blur, 3)
    there = locate(probe, P.reshape(-1, D), np.repeat(unit, 3, axis=0), width)
    near = (
        np.abs(np.nan_to_num(there.offset))
        < _NEAR * width + (16.0 if probe.resolution > NOISY else 4.0) * there.error + blur
    )
    hit = (there.found & near & (there.error < 0.05 * width)).reshape(n, 3)
    offset = 0.6 * room[:, None, None] * away + np.nan_to_num(there.offset).reshape(n, 3, 1) * unit[:, None]
    ahead = np.sum(offset * c.outwards[:, None], axis=2)
    back = -np.sum(offset * c.slopes[:, None], axis=2)
    weight = np.where(hit, ahead, 0.0)
    told = np.sum(weight * back, axis=1) / np.maximum(np.sum(weight * ahead, axis=1), 1e-300)
    good = np.flatnonzero(hit.sum(axis=1) >= 2)
    P = c.points[:, None] + offset
    return good, np.where(hit.sum(axis=1) >= 2, told, gamma), P, np.where(hit, there.error.reshape(n, 3), np.inf)


def share_of_kinks(probe, unit, rng, n=12, *, near=1e-6):
    """Share of a unit's predicted kinks that the probe show.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
    rng : numpy.random.RandomState
    n : int, default=12
    near : float, default=1e-6
        Distance up to which a kink is the one that was predicted.

    Returns
    -------
    share : float
        0 where hardly any can be looked at.
    n_seen : int
        Predicted kinks that could be looked at.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    points, normals = unit.predicted_kinks(n, rng)
    if len(points) == 0:
        return 0.0, 0
    hit, clear = _are_there(probe, points, normals, near + 3.0 * unit.errors_at(points)[0], unit.faintness)
    return (float(hit[clear].mean()), int(clear.sum())) if clear.sum() > 3 else (0.0, 0)


def _are_there(probe, points, normals, near=1e-6, faintness=0.0):
    """Which predicted kinks are there, and which could be seen: in a wide window, or else in a narrow one."""
    near = np.maximum(near, 300.0 * probe.resolution) * np.ones(len(points))
    wide, narrow = window_widths(probe, faintness)
    there = locate(probe, points, normals, wide)
    hit = there.found & (np.abs(np.nan_to_num(there.offset)) < near + 30.0 * there.error)
    again = np.flatnonzero(~hit & np.isfinite(there.error))
    closer = locate(probe, points[again], normals[again], narrow)
    hit[again] |= closer.found & (np.abs(np.nan_to_num(closer.offset)) < near[again] + 30.0 * closer.error)
    return hit, np.isfinite(there.error)


def share_of_sides(probe, unit, others, rng, n=60):
    """Of a layer's other units that the kink of one crosses: the share on both sides of which it shows.

    Kinks of the layer go on across each other, though some of their points may not show in the probe.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
    others : list of FacetUnit
    rng : numpy.random.RandomState
    n : int, default=60
        Points looked at.

    Returns
    -------
    float

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    seen = kinks_seen(probe, unit, others, rng, n)
    return 0.0 if seen is None else seen.share_of_sides([k for k, other in enumerate(others) if other is not unit])


@dataclass(frozen=True)
class KinksSeen:
    """Predicted kinks of a unit that were looked at, and on which sides of other units they are.

    Attributes
    ----------
    points : ndarray of shape (n, D)
    hit : ndarray of bool, shape (n,)
        Which are there.
    sides : ndarray of shape (n, k)
        1 or -1 on one side of another unit and on the other, 0 where that is not known.
    """

    points: np.ndarray
    hit: np.ndarray
    sides: np.ndarray

    def share_of_sides(self, others):
        """Of some units that are crossed, the share on both sides of which kinks are there; 1 if none is crossed.

        Parameters
        ----------
        others : list of int

        Returns
        -------
        float
        """
        shares = []
        for k in others:
            one, other = self.hit[self.sides[:, k] > 0], self.hit[self.sides[:, k] < 0]
            if min(len(one), len(other)) >= _ON_A_SIDE:
                shares.append(one.mean() > 0.02 and other.mean() > 0.02)
        return float(np.mean(shares)) if shares else 1.0


def kinks_seen(probe, unit, others, rng, n=60):
    """Look at predicted kinks of a unit, as many as there are on the rarer sides of other units.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
    others : list of FacetUnit
    rng : numpy.random.RandomState
    n : int, default=60
        Points looked at.

    Returns
    -------
    KinksSeen or None
        None where the unit is hardly known.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    points, normals = unit.predicted_kinks(_POOL * n, rng, n_lines=_POOL * 240)
    if len(points) < 20:
        return None
    phi = unit.known.evaluate(points)[1]
    sides = np.zeros((len(points), len(others)))
    for k, other in enumerate(others):
        if other is not unit:
            sides[:, k] = np.where(other.determined(phi), np.sign(phi @ other.theta), 0.0)
    chosen = [np.flatnonzero(sides[:, k] == s)[: n // 5] for k in range(len(others)) for s in (1.0, -1.0)]
    rare = [i for i in chosen if len(i) >= _ON_A_SIDE]
    i = np.unique(np.concatenate([np.arange(min(len(points), n // 3)), *rare]))
    hit = _are_there(probe, points[i], normals[i], 1e-6 + 3.0 * unit.errors_at(points[i])[0], unit.faintness)[0]
    return KinksSeen(points[i], hit, sides[i])
