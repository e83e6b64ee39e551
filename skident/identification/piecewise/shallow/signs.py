"""Signs of the units of one hidden layer: those that explain the linear part of the outputs."""

import numpy as np
import scipy.linalg

from skident.linalg import lapack
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.oracle import NotIdentified

from ...constants import CLEARLY, N_CHOICES, RANK_TOL
from ..kernel.signs import linear_part_matrix, slope_of_ratio
from .units import linear_part, refine_units

_BOUND = 32.0  # errors of the linear part that right signs may leave: a bound on sums over units
_FAINT_BOUND = 4.0  # `_BOUND` for the largest boundary of the last line that was not added
_LEAKY_TOL = 1e-4  # relative difference of the units' slopes that is none: about the root of the refinement's error
_DENSE_UNKNOWNS = 4000  # unknowns up to which units are refined by linear least squares, in seconds
_EQUATIONS = 1.75  # outputs per unknown of that
_MAX_SOLUTIONS = 256  # sign vectors listed; more are undecided in any case
_BAND = 2.5  # distance from hyperplanes of points near them, in standard deviations of the inputs
_RARE_SIDE = 0.05  # share of random points on one side of a hyperplane below which more points are drawn near it


def signed_units(search):
    """The units of a `LineSearch`, refined if needed, and the signs (k, m_1) that explain the linear part.

    One row, or the best few if the accuracy leaves a choice; none if nothing explains it. Raises `NotIdentified` if
    there may be signs that were not recovered.
    """
    units, (point, gradient, error) = search.units, search.anchor
    tol = _BOUND * (error + np.linalg.norm(units.output_errors)) + _FAINT_BOUND * search.faint
    target = linear_part(units, point, gradient)
    try:
        signs, residual = signs_of_linear_part(units, target, tol)
    except UndecidedSignsError as undecided:
        try:
            units, target = refined_units(search)
            signs, residual = signs_of_linear_part(units, target, tol)
        except (UndecidedSignsError, NotIdentified):
            raise _undecided(units, undecided) from None
    if len(signs) == 0:
        return units, signs
    # The tolerance is a bound; the right signs are usually exact to far less.
    order = np.argsort(residual)
    likely = residual[order] <= CLEARLY * max(residual[order[0]], error)
    return units, signs[order[likely][:N_CHOICES]]


def refined_units(search):
    """The units refined by least squares, and their linear part; `NotIdentified` if they are too many."""
    unknowns = (len(search.units) + 1) * (search.probe.oracle.n_inputs + 1)
    if unknowns > _DENSE_UNKNOWNS:
        raise NotIdentified("activation boundaries", "undecided", "too many units to be refined by least squares")
    points = points_on_both_sides(search.units, int(_EQUATIONS * unknowns), search.rng)
    return refine_units(search.probe, search.units, search.probe.oracle.clip_to_range(points))


def leaky_units(search):
    """The units, refined, their signs (1, m_1) or (0, m_1), and the slope of their other side.

    As ``leaky(z) = (1 + a) z / 2 + (1 - a) |z| / 2``, the linear part is ``rho sum_i s_i c_i w_i`` with the jumps
    ``c_i`` and ``rho = (1 + a) / (1 - a)``: its coefficients are all ``rho`` or ``-rho``. Raises `NotIdentified` if
    there may be signs that were not recovered, or several explain the linear part.
    """
    units, (point, gradient, error) = search.units, search.anchor
    if (len(units) + 1) * (len(point) + 1) <= _DENSE_UNKNOWNS:
        try:
            units, target = refined_units(search)
        except NotIdentified as undecided:
            raise _undecided(units, undecided) from None
    else:
        target = linear_part(units, point, gradient)
    M = linear_part_matrix(units.weights, units.outgoing)
    norms = np.linalg.norm(M, axis=0)
    # Columns of norm one: then their coefficients are about equally accurate.
    scaled, _, rank, _ = lapack.lstsq(M / norms, target.ravel(), rcond=RANK_TOL)
    if rank < len(units):
        tol = _BOUND * (error + np.linalg.norm(units.output_errors))
        signs, rho = _signs_and_ratio(units, M, target.ravel(), tol)
        return units, signs, slope_of_ratio(rho)
    signs, rho = np.sign(scaled), np.abs(scaled).sum() / norms.sum()
    explained = np.all(np.abs(np.abs(scaled) - rho * norms) <= _LEAKY_TOL * rho * norms.max())
    return units, signs[None][: int(explained)], slope_of_ratio(rho)


def _signs_and_ratio(units, M, target, tol):
    """Signs (1, m_1), or none, and rho of ``rho M signs = target``, with more units than equations.

    Orthogonal to `target` the sum of the units is 0 for every rho, and all signs may be reversed.
    """
    norm = np.linalg.norm(target)
    if norm <= tol or len(target) < 2:
        raise _undecided(units, "there is no linear part that determines them, or one number of it")
    orthogonal = lapack.null_space(target[None] / norm).T @ M
    try:
        others = solve_signs(orthogonal[:, 1:], -orthogonal[:, 0], tol, max_solutions=_MAX_SOLUTIONS)
    except UndecidedSignsError as error:
        raise _undecided(units, error) from None
    signs = np.column_stack([np.ones(len(others)), others])  # of the first unit and the others
    along = signs @ (target @ M) / norm**2
    residual = np.abs(signs @ orthogonal.T).max(axis=1, initial=0.0)
    order = np.argsort(residual)
    if len(signs) > 1 and residual[order[1]] <= CLEARLY * residual[order[0]]:
        raise _undecided(units, f"with an unknown slope, {len(signs)} choices explain the linear part")
    signs = signs[order[:1]] * np.sign(along[order[:1]])[:, None]
    return signs, 1.0 / np.abs(along[order[0]]) if len(signs) else 1.0


def signs_of_linear_part(units, target, tol, covariance=None):
    """Sign vectors (k, m_1) for which the units add up to the linear part (m_L, D), up to `tol`; residuals (k,).

    With a covariance (m_L D, m_L D) of the errors of the linear part, outputs first, `tol` and the residuals are in
    standard deviations.

    Raises `UndecidedSignsError` if there may be some that were not recovered.
    """
    M, target = linear_part_matrix(units.weights, units.outgoing), target.ravel()
    if covariance is not None:
        factor = lapack.cholesky(covariance)
        M, target = (scipy.linalg.solve_triangular(factor, part, lower=True) for part in (M, target))
    signs = solve_signs(M, target, tol, max_solutions=_MAX_SOLUTIONS)
    return signs, np.abs(signs @ M.T - target).max(axis=1)


def _undecided(units, error):
    return NotIdentified(
        "activation boundaries",
        "undecided",
        f"{len(units)} hyperplanes were detected, but not on which side of them the units are active: {error}",
    )


def points_on_both_sides(units, n, rng):
    """At least ``n + 4 D`` inputs (k, D): half near the center, half near hyperplanes, if any, more near far ones."""
    W, b = units.weights, units.biases
    D, m = W.shape
    n += 4 * D
    U = rng.standard_normal((n, D))
    active = np.mean(U @ W + b > 0, axis=0)
    rare = np.flatnonzero(np.minimum(active, 1.0 - active) < _RARE_SIDE)
    which = np.concatenate([np.resize(np.arange(m), n // 2 if m else 0), np.repeat(rare, int(1.5 * (D + 2)))])
    near = rng.standard_normal((len(which), D))
    move = rng.uniform(-_BAND, _BAND, len(which)) - np.sum(near * W.T[which], axis=1) - b[which]
    return np.concatenate([U[n // 2 :], near + move[:, None] * W.T[which]])
