"""On which side of their hyperplanes units are active: the signs that explain the linear part of the answers."""

from __future__ import annotations

import numpy as np
from scipy.linalg import null_space

from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.oracle import NotIdentified

from .units import linear_part, refine_units

__all__ = ["leaky_units", "oriented_units", "points_on_both_sides", "signs_for"]

_CLEARLY = 100.0  # how much worse all other signs must be
_CHOICES = 4  # signs compared by their polished networks
_LEAKY = 1e-4  # relative difference of slopes that is none
_DENSE = 4000  # unknowns up to which units are refined by linear least squares


def oriented_units(search):
    """The units, more exactly where that was needed, and the signs that explain the linear part.

    Parameters
    ----------
    search : LineSearch

    Returns
    -------
    units : ReLUUnits
    signs : ndarray of shape (k, m_1)
        One row, or the best few where the accuracy leaves a choice; none if nothing explains the linear part.

    Raises
    ------
    NotIdentified
        If there may be signs that were not found.
    """
    units, (point, gradient, accuracy) = search.units, search.anchor
    sizes = np.linalg.norm(units.outgoing, axis=1) * units.errors
    tol = 32.0 * (accuracy + np.linalg.norm(sizes)) + 4.0 * search.faint
    target = linear_part(units, point, gradient)
    try:
        found, misfit = signs_for(units, target, tol)
    except UndecidedSignsError as error:
        unknowns = (len(units) + 1) * (len(point) + 1)
        if unknowns > _DENSE:
            raise _undecided(units, error) from None
        points = points_on_both_sides(units, int(1.75 * unknowns), search.rng)
        try:
            units, target = refine_units(search.probe, units, points)
            found, misfit = signs_for(units, target, tol)
        except (UndecidedSignsError, NotIdentified):
            raise _undecided(units, error) from None
    if len(found) == 0:
        return units, found
    # The tolerance is a bound; the right signs are usually exact to far less.
    order = np.argsort(misfit)
    likely = misfit[order] <= _CLEARLY * max(misfit[order[0]], accuracy)
    return units, found[order[likely][:_CHOICES]]


def leaky_units(search):
    """The units, more exactly, their signs, and the slope of their other side.

    As ``leaky(z) = (1 + s) z / 2 + (1 - s) |z| / 2``, the linear part is ``rho sum_i sigma_i c_i w_i`` with the jumps
    ``c_i`` and ``rho = (1 + s) / (1 - s)``: its coefficients are all ``rho`` or ``-rho``.

    Parameters
    ----------
    search : LineSearch

    Returns
    -------
    units : ReLUUnits
    signs : ndarray of shape (k, m_1)
        One row, or none if nothing explains the linear part.
    slope : float

    Raises
    ------
    NotIdentified
        If there may be signs that were not found, or several explain the linear part.
    """
    units, (point, gradient, accuracy) = search.units, search.anchor
    unknowns = (len(units) + 1) * (len(point) + 1)
    if unknowns <= _DENSE:
        try:
            points = points_on_both_sides(units, int(1.75 * unknowns), search.rng)
            units, target = refine_units(search.probe, units, points)
        except NotIdentified as error:
            raise _undecided(units, error) from None
    else:
        target = linear_part(units, point, gradient)
    M = (units.outgoing.T[:, None] * units.weights).reshape(-1, len(units))
    sizes = np.linalg.norm(M, axis=0)
    scaled, _, rank, _ = np.linalg.lstsq(M / sizes, target.ravel(), rcond=1e-9)
    if rank < len(units):
        tol = 32.0 * (accuracy + np.linalg.norm(units.errors * np.linalg.norm(units.outgoing, axis=1)))
        signs, rho = _signs_and_ratio(units, M, target.ravel(), tol)
        return units, signs, (rho - 1.0) / (rho + 1.0)
    # Columns of size one: their coefficients are about as accurate.
    signs, rho = np.sign(scaled), np.abs(scaled).sum() / sizes.sum()
    explained = np.all(np.abs(np.abs(scaled) - rho * sizes) <= _LEAKY * rho * sizes.max())
    return units, signs[None][: int(explained)], (rho - 1.0) / (rho + 1.0)


def _signs_and_ratio(units, M, target, tol):
    """Signs (1, m_1), or none, and rho of ``rho M signs = target``, where there are more units than equations.

    Across `target` the sum of the units is 0 whatever rho is, and all signs may be turned round.
    """
    size = np.linalg.norm(target)
    if size <= tol or len(target) < 2:
        raise _undecided(units, "there is no linear part that would tell it, or one number of it")
    across = null_space(target[None] / size).T @ M
    try:
        rest = solve_signs(across[:, 1:], -across[:, 0], tol, max_solutions=256)
    except UndecidedSignsError as error:
        raise _undecided(units, error) from None
    signs = np.column_stack([np.ones(len(rest)), rest])  # of the first unit and the others
    along = signs @ (target @ M) / size**2
    misfit = np.abs(signs @ across.T).max(axis=1, initial=0.0)
    order = np.argsort(misfit)
    if len(signs) > 1 and misfit[order[1]] <= _CLEARLY * misfit[order[0]]:
        raise _undecided(units, f"with an unknown slope, {len(signs)} choices explain the linear part")
    signs = signs[order[:1]] * np.sign(along[order[:1]])[:, None]
    return signs, 1.0 / np.abs(along[order[0]]) if len(signs) else 1.0


def signs_for(units, target, tol):
    """Sign vectors for which the units add up to the linear part.

    Parameters
    ----------
    units : ReLUUnits
    target : ndarray of shape (m_L, D)
        As `linear_part` gives it.
    tol : float
        Its accuracy.

    Returns
    -------
    signs : ndarray of shape (k, m_1)
    misfit : ndarray of shape (k,)

    Raises
    ------
    UndecidedSignsError
        If there may be some that were not found.
    """
    M = (units.outgoing.T[:, None] * units.weights).reshape(-1, len(units))
    found = solve_signs(M, target.ravel(), tol, max_solutions=256)
    return found, np.abs(found @ M.T - target.ravel()).max(axis=1)


def _undecided(units, error):
    return NotIdentified(
        "activation boundaries",
        "undecided",
        f"{len(units)} hyperplanes were found, but not on which side of them the units are active: {error}",
    )


def points_on_both_sides(units, n, rng):
    """Inputs of which half are near the centre, half near the hyperplanes, and more near far ones.

    Parameters
    ----------
    units : ReLUUnits
    n : int
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (k, D)
        ``k >= n + 4 D``.
    """
    W, b = units.weights, units.biases
    D, m = W.shape
    n += 4 * D
    U = rng.standard_normal((n, D))
    active = np.mean(U @ W + b > 0, axis=0)
    rare = np.flatnonzero(np.minimum(active, 1.0 - active) < 0.05)
    which = np.concatenate([np.arange(n // 2) % m, np.repeat(rare, int(1.5 * (D + 2)))])
    near = rng.standard_normal((len(which), D))
    move = rng.uniform(-2.5, 2.5, len(which)) - np.sum(near * W.T[which], axis=1) - b[which]
    return np.concatenate([U[n // 2 :], near + move[:, None] * W.T[which]])
