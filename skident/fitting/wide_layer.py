"""A hidden layer fitted with many units from one random start, then reduced to those that the outputs need."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.budget import require_memory
from skident.optim import DenseNormalEquations, levenberg_marquardt, one_blas_thread

__all__ = ["fit_wide_layer", "losses_in_turn"]

_WEIGHT_SIZE = 1.6  # standard deviation of a pre-activation of the start: at 0.6, fits of trained networks stall
_RIDGE = 1e-4  # of the first output weights, relative to the units' outputs
_WIDE_STEPS = 80  # of the wide fit at most
_WIDE_RESIDUAL = 2e-5  # relative, at which it ends: every unit is found, and redundant ones only slow it down
_SLOW_GAIN = 0.3  # the wide fit ends when `_SLOW_STEPS` steps lower the cost by less than this part
_SLOW_STEPS = 6
_FOUND_RESIDUAL = 1e-3  # relative, below which a slow fit is reduced; above it goes on
_REDUCED_STEPS = 40  # of the fit at the final width
_FTOL = 1e-2  # relative gain of its last steps
_RANK = 1e-10  # of the Gauss-Newton matrix, relative to its mean diagonal: rounding


def fit_wide_layer(problem, biases, n_units, width, rng, limits):
    """Parameters (P,) of a `DownstreamOfKnownUnits`, and their relative root mean square residual.

    A layer of `width` units is fitted by Levenberg-Marquardt from random weights, then reduced to `n_units`, or where
    further removals would cost far more (None), and fitted again. `biases` (m_1,) are the first biases of the known
    units; `limits` is a `GrowPruneLimits`, whose `tol` ends the last fit.

    With 1.75 times the true number of units and five outputs per parameter, all of 32 units were found from 8 of 8
    random starts; with 1.25 times from 1 of 4. Small weights at the start find those of trained networks in none. Steps
    are damped alike for all parameters: relative to their effects, redundant units run away. A step costs
    ``O(n P^2 + P^3)`` in single precision.
    """
    with one_blas_thread():
        params = _start(problem, biases, width, rng)
        require_memory(2 * 8 * len(params) ** 2, f"the fit of {len(params)} parameters")
        params, cost = _fit(problem, params, _WIDE_STEPS, _WIDE_RESIDUAL, limits)
        if cost < _FOUND_RESIDUAL**2 * problem.total:
            params = _reduced(problem, params, n_units)
            params, cost = _fit(problem, params, _REDUCED_STEPS, limits.target, limits)
    return params, float(np.sqrt(cost / problem.total))


def _start(problem, biases, width, rng):
    """Random weights of the layer, and the output weights that fit the outputs best."""
    norms, d = np.ones(problem.n_known), problem.n_known + 1
    W = _WEIGHT_SIZE * rng.standard_normal((d, width)) / np.sqrt(d)
    features = problem.features(problem.join(biases, norms, W, np.zeros((width + 1, problem.Y.shape[1]))))
    G = np.column_stack([problem.activation(features @ W), np.ones(len(features))])
    A = G.T @ G
    A.flat[:: len(A) + 1] += _RIDGE * len(G)
    return problem.join(biases, norms, W, np.linalg.solve(A, G.T @ problem.Y))


def _fit(problem, params, n_steps, residual, limits):
    """Steps of Levenberg-Marquardt until a relative residual is reached: parameters and cost."""
    costs, done = [problem.cost(params)], _FOUND_RESIDUAL**2 * problem.total

    def stop(n_iter, cost):
        costs.append(cost)
        if limits.progress is not None:
            limits.progress(n_iter)
        slow = len(costs) > _SLOW_STEPS and cost > (1.0 - _SLOW_GAIN) * costs[-1 - _SLOW_STEPS]
        return limits.late or (slow and cost < done)

    options = {"max_iter": n_steps, "target": residual**2 * problem.total, "ftol": _FTOL**2, "callback": stop}

    def linearize(x):
        return DenseNormalEquations(*problem.normal_equations(x, single=True), uniform=True)

    result = levenberg_marquardt(problem.cost, linearize, params, **options)
    return result.x, result.cost


def _reduced(problem, params, n_units):
    """Parameters without the units whose loss costs least; see `losses_in_turn`."""
    A, _ = problem.normal_equations(params)
    biases, norms, W, V = problem.split(params)
    units, losses, left = losses_in_turn(A, V, problem.cost(params))
    if n_units is None:
        n_units = len(units) - int(np.argmax(losses[1:] / losses[:-1])) - 1
    n_removed = max(len(units) - n_units, 0)
    kept = np.sort(units[n_removed:])
    return problem.join(biases, norms, W[:, kept], np.vstack([left[n_removed][kept], left[n_removed][-1:]]))


def losses_in_turn(A, V, cost):
    """The units in the order in which they are removed, the cost after each removal, and the output weights before it.

    Optimal brain surgeon (Hassibi and Stork, 1993) for units: without unit j, all other parameters follow to first
    order. A (P, P) is the Gauss-Newton matrix, overwritten, whose last parameters are V (m + 1, m_L), `cost` that of all
    units. The inverse is updated after every removal; only its part for V is needed.
    """
    m, m_L = V.shape[0] - 1, V.shape[1]
    A.flat[:: len(A) + 1] += _RANK * np.mean(np.diag(A))
    last = np.zeros((len(A), V.size), dtype=A.dtype)
    last[len(A) - V.size :] = np.eye(V.size, dtype=A.dtype)
    factor = scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    inverse = scipy.linalg.cho_solve(factor, last, overwrite_b=True, check_finite=False)[len(A) - V.size :].astype(float)
    v, alive, order, losses, left = V.ravel().copy(), np.ones(m, dtype=bool), [], [], []
    for _ in range(m):
        blocks = inverse.reshape(m + 1, m_L, m + 1, m_L)[np.arange(m), :, np.arange(m)]
        each = v.reshape(m + 1, m_L)[:m]
        loss = np.full(m, np.inf)
        loss[alive] = np.einsum("jk,jk->j", each[alive], np.linalg.solve(blocks[alive], each[alive][:, :, None])[:, :, 0])
        j = int(np.argmin(loss))
        left.append(v.reshape(m + 1, m_L).copy())
        cost += max(float(loss[j]), 0.0)
        order.append(j)
        losses.append(cost)
        mine = slice(j * m_L, (j + 1) * m_L)
        gain = np.linalg.solve(inverse[mine, mine], inverse[mine]).T
        v, inverse, alive[j] = v - gain @ v[mine], inverse - gain @ inverse[mine], False
    return np.array(order), np.array(losses), left
