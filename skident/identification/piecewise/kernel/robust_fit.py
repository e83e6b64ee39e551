"""Least squares on measurements of which some belong to something else: equations, hyperplanes, outputs."""

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import EXACT_RANK_TOL
from skident.linalg import lapack, svd

NOISY = 1e-11  # resolution of the outputs above which equations are weighted by their errors, and more are measured
_WITHIN = 6.0  # errors that an equation may be off by: none of a thousand normal ones is
_ROUNDS = 30  # reweightings at most, and changes of the active set
_SETTLED = 1e-2  # relative change of the weights that ends the reweighting: the active set no longer depends on it
_LEAST_RESIDUAL = 0.3  # errors below which a residual weighs no more
_RANK_OUTPUTS = 1e-12  # `EXACT_RANK_TOL` for fits of outputs, whose features may be nearly dependent


class ActiveSetFit(NamedTuple):
    """A solution of equations with known errors."""

    solution: np.ndarray  # (q,)
    kept: np.ndarray  # (n,), mask of the equations that it satisfies
    covariance: np.ndarray  # (q, q), for independent errors of the equations kept
    residual: float  # median of those kept, in errors


def active_set_fit(A, y, errors):
    """Solve ``A x = y`` by weighted least squares on the equations that can be satisfied together; None if too few can.

    First the sum of ``|A x - y| / errors`` is minimized by reweighting, then that of the squares over the equations
    within six errors, until these stay the same. At least half of the equations must agree, and two more than unknowns.
    """
    A, y = A / errors[:, None], y / errors
    n, q = A.shape
    weight = np.ones(n)
    for _ in range(_ROUNDS):
        check_deadline()
        x = lapack.lstsq(A * weight[:, None], y * weight, rcond=EXACT_RANK_TOL)[0]
        weight, before = 1.0 / np.sqrt(np.maximum(np.abs(A @ x - y), _LEAST_RESIDUAL)), weight
        if np.all(np.abs(weight - before) <= _SETTLED * before):
            break
    kept = np.zeros(n, dtype=bool)
    for _ in range(_ROUNDS):
        residual = np.abs(A @ x - y)
        within = residual <= _WITHIN * max(1.0, np.median(residual))
        if within.sum() < q + 2 or np.array_equal(within, kept):
            break
        kept = within
        x = lapack.lstsq(A[kept], y[kept], rcond=EXACT_RANK_TOL)[0]
    if kept.sum() < max(q + 2, 0.5 * n):
        return None
    s, Vt = svd(A[kept], full_matrices=False)[1:]
    s = np.maximum(s, EXACT_RANK_TOL * s[0])
    return ActiveSetFit(x, kept, (Vt.T / s**2) @ Vt, float(np.median(np.abs(A[kept] @ x - y[kept]))))


class PlaneFit(NamedTuple):
    """A hyperplane ``normal . x + offset = 0`` through points."""

    normal: np.ndarray  # (D,), norm 1
    offset: float
    normal_error: float
    kept: np.ndarray  # (n,), mask of the points on it
    residual: float  # median distance of these, in their errors


def fit_plane_near(points, errors, normal, offset):
    """The hyperplane near a given one through points (n, D) with errors (n,) across it; None if too few agree."""
    tangents = svd(normal[None])[2][1:].T
    # (normal + tangents t) . x + offset + c = 0
    A = np.column_stack([points @ tangents, np.ones(len(points))])
    fit = active_set_fit(A, -(points @ normal) - offset, errors)
    if fit is None:
        return None
    normal = normal + tangents @ fit.solution[:-1]
    norm = np.linalg.norm(normal)
    normal_error = float(np.sqrt(np.trace(fit.covariance[:-1, :-1])))
    return PlaneFit(normal / norm, (offset + fit.solution[-1]) / norm, normal_error, fit.kept, fit.residual)


def fit_outputs(A, F, tol, *, explained, n_rounds, settled=0.0, floor=1.0):
    """Coefficients (q, m_L) of ``A x = F`` by least absolute deviations, and the residuals (n,) over `tol` (n,).

    Reweighted least squares, until all residuals are below `explained`, or their median below `settled`. Residuals
    below `floor` (a number, or a function of all residuals) weigh no more.
    """
    size = np.linalg.norm(A, axis=0)
    size[size == 0.0] = 1.0  # features without any output get no coefficient but rounding
    A, w = A / size, 1.0 / tol
    for _ in range(n_rounds):
        solution = lapack.lstsq(A * w[:, None], F * w[:, None], rcond=_RANK_OUTPUTS)[0]
        residual = np.abs(A @ solution - F).max(axis=1) / tol
        if np.all(residual < explained) or np.median(residual) < settled:
            break
        w = 1.0 / (tol * np.sqrt(np.maximum(residual, floor(residual) if callable(floor) else floor)))
    return solution / size[:, None], residual
