"""Grow and prune: a hidden layer whose units are exchanged for better ones until its fit is exact."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.budget.constants import (
    COARSE_FTOL,
    GROWTH_DAMPING,
    GROWTH_STEPS,
    MAX_WEIGHT,
    RANDOM_UNITS,
    REFIT_STEPS,
    REMOVAL_DAMPING,
    REMOVAL_STEPS,
    RIDGE_OF_PRODUCTS,
)
from skident.linalg import lapack
from skident.optim import levenberg_marquardt, one_blas_thread

__all__ = [
    "GrowPruneLimits",
    "damp",
    "grow_and_prune",
    "prune_within_tolerance",
    "removal_losses",
]

_SIZES = (0.3, 3.0)  # of candidates' weights, relative to those of a pre-activation of variance 1
_EXCHANGED_SHARE = 5.0  # one unit in so many is exchanged in a cycle
_PATIENCE = 8  # steps
_GAIN = 0.5  # a fit ends when `_PATIENCE` steps do not lower the cost to this part
_IMPROVED = 0.999  # part of the cost that a cycle has to leave at most
_RANDOM_REMOVALS = 3  # failures after which the unit to remove is drawn, no longer the cheapest
_MAX_FAILURES = 12  # failures in a row after which another start is made
_FREE_NORMS_RESIDUAL = 1e-4  # relative residual below which the norms of known units are fitted too
_REMOVALS_TRIED = 3  # units whose removal is tried before another network of the smaller width is sought
_CYCLES_PER_WIDTH = 12  # of that search: a start at the true width took about ten
_MIN_SQUARE = 1e-20  # mean square of a candidate's part outside the tangent space: rounding


@dataclass(frozen=True)
class GrowPruneLimits:
    """How long to go on, and the residual that ends it."""

    n_starts: int = 6  # random starts at most
    n_cycles: int = 150  # cycles at most, those of all starts
    deadline: float = np.inf  # of `time.perf_counter`, after which no step is made
    tol: float = 1e-9  # relative root mean square residual that ends it
    target: float = 1e-12  # same, at which a single fit ends: no smaller one is possible
    progress: Callable | None = None  # ``progress(n)`` with the number of cycles done

    @property
    def late(self):
        """Whether no further step may be made."""
        return time.perf_counter() >= self.deadline


def grow_and_prune(problem, free_problem, biases, n_units, rng, limits=None):
    """Fit one hidden layer of `n_units` to outputs from random starts: parameters (P,), residual, number of cycles.

    `problem` is a `DownstreamOfKnownUnits`; `free_problem` has the norms of the known units free too, for when the
    outputs are nearly explained. `biases` (m_1,) are initial biases of the known units.

    Least squares at the true width ends in local minima where two units share one true unit, and one stands for two. A
    cycle adds units, fits, removes as many, and fits again; it is undone if that did not help. The units added are, of
    400 random ones, those that lower the cost most when all other parameters follow to first order: with residual r,
    Jacobian J and a unit's outputs u, the largest ``(r.u')^2 / |u'|^2`` with ``u' = u - J J^+ u``. The units removed
    are those whose loss costs least in the same sense. After failures both are drawn rather than best. A start of
    (12, 12, 1) takes about ten cycles, one second; a step costs ``O(n m_L P^2)``.
    """
    limits = GrowPruneLimits() if limits is None else limits
    best, least, done = None, np.inf, 0
    with one_blas_thread():
        for _ in range(limits.n_starts):
            params = problem.start(biases, n_units, rng)
            params, residual, done = _from_start(problem, free_problem, params, n_units, rng, limits, done)
            if best is None or residual < least:
                best, least = params, residual
            if least < limits.tol or done >= limits.n_cycles or limits.late:
                break
    return best, least, done


def prune_within_tolerance(problem, params, rng, limits):
    """Remove hidden units one at a time, with a fit after each, while the residual stays below `limits.tol`: (P,).

    If no removal succeeds at once, some cycles of growing and pruning search for a network of the smaller width.
    """
    limits = replace(limits, n_cycles=_CYCLES_PER_WIDTH)
    with one_blas_thread():
        while (width := problem.split(params)[2].shape[1] - 1) > 0 and not limits.late:
            fewer, cost = _without_one(problem, params, limits)
            if cost > limits.tol**2 * problem.total:
                fewer, residual, _ = _from_start(problem, problem, fewer, width, rng, limits, 0)
                if not residual < limits.tol:
                    break
            params = fewer
    return params


def _without_one(problem, params, limits):
    """Parameters (P,) and cost without one of the units that matter least: the first removal within tolerance."""
    best, least = None, np.inf
    for k in np.argsort(_losses(problem, params))[:_REMOVALS_TRIED]:
        fewer, cost = _fit(problem, _without(problem, params, k), REFIT_STEPS, limits)
        if best is None or cost < least:
            best, least = fewer, cost
        if least < limits.tol**2 * problem.total:
            break
    return best, least


def _from_start(problem, free_problem, params, n_units, rng, limits, done):
    """Cycles from one start until the fit is exact or given up: parameters, residual, and the number of all cycles."""
    params, cost = _fit(problem, params, REFIT_STEPS, limits)
    params, residual = _with_free_norms(free_problem, params, cost, limits)
    failures = 0
    while residual > limits.tol and failures <= _MAX_FAILURES and done < limits.n_cycles and not limits.late:
        done += 1
        new, new_cost = _cycle(problem, params, n_units, rng, limits, failures)
        failures += 1
        if new_cost < _IMPROVED * cost:
            failures, cost = 0, new_cost
            params, residual = _with_free_norms(free_problem, new, cost, limits)
        if limits.progress is not None:
            limits.progress(done)
    return params, residual, done


def _with_free_norms(free_problem, params, cost, limits):
    """Parameters and residual, after a fit of the norms too if the outputs are nearly explained."""
    if cost < _FREE_NORMS_RESIDUAL**2 * free_problem.total:
        freed, less = _fit(free_problem, params, REFIT_STEPS, limits)
        if less < limits.tol**2 * free_problem.total:
            params, cost = freed, less
    return params, float(np.sqrt(cost / free_problem.total))


def _cycle(problem, params, n_units, rng, limits, failures):
    """Some units more and as many less, with fits in between: parameters and cost."""
    n_more = max(1, round(n_units / _EXCHANGED_SHARE))
    params, cost = _fit(problem, _grown(problem, params, n_more, rng, failures), GROWTH_STEPS, limits)
    for left in range(n_more - 1, -1, -1):
        losses = _losses(problem, params)
        rank = int(rng.exponential(0.4)) if failures >= _RANDOM_REMOVALS else 0
        params = _without(problem, params, np.argsort(losses)[min(rank, len(losses) - 1)])
        params, cost = _fit(problem, params, REMOVAL_STEPS if left else REFIT_STEPS, limits)
    return params, cost


def _fit(problem, params, n_steps, limits):
    """A few steps of Levenberg-Marquardt: parameters and cost."""
    costs = []

    def stop(_, cost):
        costs.append(cost)
        slow = len(costs) > _PATIENCE and cost > _GAIN * costs[-1 - _PATIENCE]
        return slow or limits.late

    options = {"target": limits.target**2 * problem.total, "ftol": COARSE_FTOL, "callback": stop}
    result = levenberg_marquardt(problem.cost, problem.linearize, params, max_iter=n_steps, **options)
    return result.x, result.cost


def damp(A, damping):
    """Add a part of its own diagonal to a Gauss-Newton matrix A (P, P), in place."""
    diagonal = np.diag(A)
    A.flat[:: len(A) + 1] += damping * np.maximum(diagonal, RIDGE_OF_PRODUCTS * max(diagonal.max(), 1e-300))
    return A


def removal_losses(J, A, residuals, indices):
    """Predicted costs without each unit, all other parameters following to first order, (m,).

    J (N, P) is the Jacobian and A (P, P) its damped Gram matrix. `residuals` (N,) are those without each unit, whose
    parameters have the `indices` and stay fixed: a least-squares problem with constraints, by block elimination.
    """
    inverse, losses = lapack.inv(A), []
    for left, fixed in zip(residuals, indices, strict=True):
        g = J.T @ left
        step = -inverse @ g
        step -= inverse[:, fixed] @ lapack.solve(inverse[np.ix_(fixed, fixed)], step[fixed])
        losses.append(left @ left + 2.0 * g @ step + step @ A @ step)
    return np.array(losses)


def _losses(problem, params):
    """`removal_losses` of every hidden unit."""
    J, A = problem.jacobian(params), problem.normal_equations(params)[0]
    r, (_, _, W, V) = problem.residual(params), problem.split(params)
    G = problem.activation(problem.features(params) @ W)
    residuals = [(r - G[:, k, None] * V[k]).ravel() for k in range(W.shape[1])]
    return removal_losses(J, damp(A, REMOVAL_DAMPING), residuals, problem.unit_indices(params))


def _grown(problem, params, n_more, rng, temperature):
    """More units: the best of random ones or, after failures, drawn among the better ones."""
    J, A = problem.jacobian(params), problem.normal_equations(params)[0]
    factor = lapack.cho_factor(damp(A, GROWTH_DAMPING), lower=True, overwrite_a=True, check_finite=False)
    biases, norms, W, V = problem.split(params)
    r, (n, m_L) = problem.residual(params).ravel(), problem.Y.shape
    sizes = np.exp(rng.uniform(*np.log(_SIZES), RANDOM_UNITS)) / np.sqrt(len(W))
    C = rng.standard_normal((len(W), RANDOM_UNITS)) * sizes
    U = problem.activation(problem.features(params) @ C)
    columns = np.einsum("nk,pq->npqk", U, np.eye(m_L)).reshape(n * m_L, -1)
    columns -= J @ scipy.linalg.cho_solve(factor, J.T @ columns, check_finite=False)
    columns = columns.reshape(n * m_L, m_L, RANDOM_UNITS)
    largest = MAX_WEIGHT * np.abs(V[:-1]).max()
    for _ in range(n_more):
        squares = np.maximum(np.sum(columns**2, axis=0), _MIN_SQUARE * n)
        overlaps = np.einsum("n,npk->pk", r, columns)
        order = np.argsort(-np.sum(overlaps**2 / squares, axis=0))
        k = order[min(int(rng.exponential(temperature)) if temperature else 0, RANDOM_UNITS - 1)]
        W = np.column_stack([W, C[:, k]])
        V = np.vstack([V[:-1], np.clip(-overlaps[:, k] / squares[:, k], -largest, largest), V[-1:]])
        Q = lapack.qr(columns[:, :, k])[0]
        r = r - Q @ (Q.T @ r)
        columns = columns - np.einsum("nq,qpk->npk", Q, np.einsum("nq,npk->qpk", Q, columns))
    return problem.join(biases, norms, W, V)


def _without(problem, params, k):
    """One hidden unit less."""
    biases, norms, W, V = problem.split(params)
    return problem.join(biases, norms, np.delete(W, k, axis=1), np.delete(V, k, axis=0))
