"""Units of a layer made more exact from located kinks, and put together from what was seen of them apart."""

from __future__ import annotations

import numpy as np

from .active_set import active_set_fit
from .facets import FacetUnit
from .segments import KinkSet
from .tracing import learn_positions
from .windows import locate, windows

__all__ = ["intersection", "kinks_of", "parallel", "refine"]

_SAME = 1e-5  # sine of an angle below which directions are the same
_TRIES_NOISY = 12  # rounds of lines on which a unit's kinks are predicted where more of them are wanted


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
    joint.learn(rows, np.zeros(len(rows)), np.vstack([one.starts, other.starts]))
    return joint


def _noisy_intersection(one, other):
    """The same from equations that have errors."""
    joint = one.joined(other)
    n_unknowns = len(one.theta) if one.basis is None else one.basis.shape[1]
    by_chance = max(0, one.n_open + other.n_open + 2 - n_unknowns)
    return joint if joint.misfit < 1e-5 and joint.n_open + 1 > by_chance else None


def refine(answers, unit, rng, *, spare=8):
    """Theta by least squares on located kinks, where it is determined; left as it was where that does not fit.

    Parameters
    ----------
    answers : Answers
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
        _refine_noisy(answers, unit, free, rng)
        return
    points, normals = unit.predicted_kinks(free.shape[1] + spare, rng)
    if len(points) < free.shape[1] + 3:
        return
    offset, found, _ = _near_predicted(answers, points, normals)
    if found.sum() < free.shape[1] + 2:
        return
    P = points[found] + offset[found, None] * normals[found]
    phi = unit.known.evaluate(P)[1]
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    A, y = phi @ free, phi @ unit.theta
    for _ in range(6):
        step = -np.linalg.lstsq(A, y, rcond=1e-9)[0]
        misfit = np.abs(y + A @ step)
        keep = misfit <= max(20.0 * np.median(misfit), 1e-14)
        if keep.all() or keep.sum() < free.shape[1] + 1:
            break
        A, y = A[keep], y[keep]
    if np.median(misfit) < 1e-6 + 30.0 * answers.resolution and np.linalg.norm(step) < 0.1 * np.linalg.norm(unit.theta):
        unit.theta = unit.theta + free @ step


def _refine_noisy(answers, unit, free, rng):
    """The same by weighted least squares, on more kinks; these become the unit's equations."""
    points, normals = unit.predicted_kinks(2 * free.shape[1] + 24, rng, tries=_TRIES_NOISY)
    if len(points) < free.shape[1] + 6:
        return
    offset, found, errors = _near_predicted(answers, points, normals, unit.faintness)
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


def _near_predicted(answers, points, normals, faintness=0.0):
    """Offsets of kinks from where they were predicted, in ever narrower windows, where there are any, and errors."""
    wide, narrow = windows(answers, faintness)
    offset, found, todo = np.full(len(points), np.nan), np.zeros(len(points), dtype=bool), np.arange(len(points))
    errors = np.full(len(points), np.inf)
    for width in (wide, np.sqrt(wide * narrow), narrow):
        there = locate(answers, points[todo], normals[todo], width)
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
    KinkSet
    """
    points, normals = (np.array([getattr(u, name) for u in units]) for name in ("point", "normal"))
    return KinkSet(points.reshape(-1, n_inputs), normals.reshape(-1, n_inputs), np.full(len(units), 1e-9))
