"""Units of a layer made more exact from located kinks, and put together from what was seen of them apart."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ..kernel.lines import CriticalPoints
from ..kernel.locate import locate, window_widths
from ..kernel.robust_fit import active_set_fit
from .facets import FacetUnit
from .follow_facets import learn_positions, trace

__all__ = ["intersection", "kinks_of", "parallel", "refine", "trace_on"]

_ROUNDS, _SETTLED = 3, 1e-9  # of locating kinks, at most, and the relative step after which there are no more
_ROUNDS_AGAIN = 12  # of following a unit that was left
_POOL = 3  # predicted kinks for one that is located
_SAME = 1e-5  # sine of an angle below which directions are the same
_LINES_NOISY = 720  # on which a unit's kinks are predicted where more of them are wanted


def intersection(one, other):
    """A unit that is both of two, if what is known of them meets in more directions than chance allows.

    Parameters
    ----------
    one, other : FacetUnit

    Returns
    -------
    FacetUnit or None
    """
    if one.known.accuracy:
        return _noisy_intersection(one, other)
    a, b = (np.linalg.qr(np.column_stack([unit.theta, unit.open]))[0] for unit in (one, other))
    n_unknowns = len(one.theta) if one.basis is None else one.basis.shape[1]
    s = np.linalg.svd(b - a @ (a.T @ b), compute_uv=False)
    if np.sum(s < _SAME) <= max(0, a.shape[1] + b.shape[1] - n_unknowns):
        return None
    eye = np.eye(len(a))
    s, rows = np.linalg.svd(np.vstack([eye - a @ a.T, eye - b @ b.T]), full_matrices=False)[1:]
    rows = rows[s > _SAME]
    joint = FacetUnit(one.known, one.point, one.normal, one.basis)
    joint.learn(rows, np.zeros(len(rows)), np.vstack([one.located[1:], other.located]))
    joint.starts = np.vstack([one.starts, other.starts])
    return joint


def _noisy_intersection(one, other):
    """The same from equations that have errors."""
    joint = one.joined(other)
    n_unknowns = len(one.theta) if one.basis is None else one.basis.shape[1]
    by_chance = max(0, one.n_open + other.n_open + 2 - n_unknowns)
    return joint if joint.misfit < 1e-5 and joint.n_open + 1 > by_chance else None


def refine(probe, unit, rng, *, spare=8):
    """Theta by least squares on located kinks, where it is determined; left as it was where that does not fit.

    Parameters
    ----------
    probe : DeepProbe
    unit : FacetUnit
        Changed in place.
    rng : numpy.random.RandomState
    spare : int, default=8
        Kinks beyond the unknowns.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    free = _free_directions(unit)
    if unit.known.accuracy:
        _refine_noisy(probe, unit, free, rng)
        return
    allowed = 1e-6 + 30.0 * probe.resolution
    for _ in range(_ROUNDS):
        phi = unit.known.evaluate(_located_near(probe, unit, free, spare, rng))[1]
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        step, misfit = _step(phi @ free, phi @ unit.theta)
        if step is None or misfit > allowed or np.linalg.norm(step) > 0.1 * np.linalg.norm(unit.theta):
            break
        unit.theta = unit.theta + free @ step
        if np.linalg.norm(step) < _SETTLED * np.linalg.norm(unit.theta):
            break


def trace_on(probe, units, rng):
    """Follow units again across boundaries behind which they are not known, with more patience; see `trace`.

    Parameters
    ----------
    probe : DeepProbe
    units : list of FacetUnit
        Changed in place.
    rng : numpy.random.RandomState

    Returns
    -------
    int
        Directions of theta that became known.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    learnt = 0
    for unit in units:
        before = unit.n_open
        if before:
            trace(probe, unit, rng, n_rounds=_ROUNDS_AGAIN, hasty=False)
        if unit.n_open < before:
            refine(probe, unit, rng)
        learnt += before - unit.n_open
    return learnt


def _located_near(probe, unit, free, spare, rng):
    """Kinks of a unit as the probe show them: those it was traced along, and predicted ones that tell most of it."""
    points, normals = unit.predicted_kinks(_POOL * (free.shape[1] + spare), rng)
    if len(points) == 0:
        return unit.located
    phi = unit.known.evaluate(points)[1]
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    order = scipy.linalg.qr((phi @ free).T, mode="r", pivoting=True)[1]
    chosen = order[: free.shape[1]]
    chosen = np.concatenate([chosen, rng.permutation(np.setdiff1d(np.arange(len(points)), chosen))[:spare]])
    points, normals = points[chosen], normals[chosen]
    offset, found, _ = _near_predicted(probe, points, normals)
    return np.vstack([unit.located, points[found] + offset[found, None] * normals[found]])


def _step(A, y):
    """The least-squares solution of ``A step = -y`` without what does not fit, and the median misfit."""
    step, misfit = None, np.inf
    for _ in range(12):
        if len(A) < A.shape[1] + 2:
            return None, np.inf
        step = -np.linalg.lstsq(A, y, rcond=1e-9)[0]
        off = np.abs(y + A @ step)
        misfit = np.median(off)
        keep = off <= max(20.0 * misfit, 1e-14)
        if keep.all():
            break
        A, y = A[keep], y[keep]
    return step, misfit


def _refine_noisy(probe, unit, free, rng):
    """The same by weighted least squares, on more kinks; these become the unit's equations."""
    points, normals = unit.predicted_kinks(2 * free.shape[1] + 24, rng, n_lines=_LINES_NOISY)
    if len(points) < free.shape[1] + 6:
        return
    offset, found, errors = _near_predicted(probe, points, normals, unit.faintness)
    if found.sum() < free.shape[1] + 4:
        return
    P, errors = points[found] + offset[found, None] * normals[found], errors[found]
    Z, phi = unit.known.evaluate(P)
    errors = errors * np.linalg.norm(unit.known.gradients(Z > 0, unit.theta), axis=1)
    errors = errors + unit.known.accuracy * np.linalg.norm(phi, axis=1)
    fit = active_set_fit(phi @ free, -phi @ unit.theta, errors)
    if fit is not None and np.linalg.norm(fit.solution) < 0.1 * np.linalg.norm(unit.theta):
        unit.forget(unit.theta + free @ fit.solution)
        learn_positions(unit, P[fit.kept], errors[fit.kept])


def _near_predicted(probe, points, normals, faintness=0.0):
    """Offsets of kinks from where they were predicted, in ever narrower windows, where there are any, and errors."""
    wide, narrow = window_widths(probe, faintness)
    offset, found, todo = np.full(len(points), np.nan), np.zeros(len(points), dtype=bool), np.arange(len(points))
    errors = np.full(len(points), np.inf)
    for width in (wide, np.sqrt(wide * narrow), narrow):
        there = locate(probe, points[todo], normals[todo], width)
        offset[todo], found[todo], errors[todo] = there.offset, there.found, there.error
        todo = todo[~there.found & np.isfinite(there.error)]
    return offset, found, errors


def _free_directions(unit):
    """Orthonormal directions in which theta may move: neither its length nor what is open."""
    fixed = np.linalg.qr(np.column_stack([unit.theta, unit.open]))[0]
    whole = np.eye(len(unit.theta)) if unit.basis is None else np.linalg.qr(unit.basis)[0]
    left = whole - fixed @ (fixed.T @ whole)
    U, s, _ = np.linalg.svd(left, full_matrices=False)
    return U[:, s > 1e-6]


def parallel(one, other):
    """Whether two vectors are parallel.

    Parameters
    ----------
    one, other : ndarray of shape (n,)

    Returns
    -------
    bool
    """
    sizes = np.linalg.norm(one) * np.linalg.norm(other)
    return sizes > 0 and np.linalg.norm(one - other * (one @ other) / (other @ other)) < _SAME * np.linalg.norm(one)


def kinks_of(units, n_inputs):
    """The kinks that units were traced from.

    Parameters
    ----------
    units : list of FacetUnit
    n_inputs : int

    Returns
    -------
    CriticalPoints
    """
    points, normals = (np.array([getattr(u, name) for u in units]) for name in ("point", "normal"))
    return CriticalPoints(points.reshape(-1, n_inputs), normals.reshape(-1, n_inputs), np.full(len(units), 1e-9))
