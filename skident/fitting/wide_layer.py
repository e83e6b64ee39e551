"""A hidden layer fitted with many units from one random start, then reduced to those that the outputs need."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.budget import memory_allows, require_memory
from skident.budget.constants import COARSE_FTOL, DENSE_PARAMETERS, NEAR_STEPS, RIDGE_OF_PRODUCTS, ROUNDS
from skident.linalg import lapack
from skident.optim import DenseNormalEquations, levenberg_marquardt, one_blas_thread
from skident.optim.adam import Adam, batches
from skident.optim.damped_cholesky import damped_cholesky

_WEIGHT_SIZE = 1.6  # standard deviation of a pre-activation of the start: at 0.6, fits of trained networks stall
_RIDGE = 1e-4  # of the first output weights, relative to the units' outputs
_ADAM_STEPS = 100_000  # of a large fit (budget): 35 s for 9,000 parameters; they leave residuals of 3e-3
_BATCH = 256  # outputs per step (tuned on tanh networks 17-64-64-6)
_RATE = 0.01  # of weights, at the beginning; it falls to zero along a cosine (tuned there)
_FIRST_RATE = 0.003  # `_RATE` of first-layer biases and norms, which are nearly right
_LATE_EVERY = 1000  # steps between checks of the time
_REMOVED = 4.0  # times the cost, that the removal of units may leave: stochastic steps have not converged
_KEPT = 0.65  # of the units, that remain at least: some find weak units of trained networks only later
_WIDE_STEPS = 500  # of the wide fit at most: units of sigmoids are nearly linear
_LARGE_STEPS = 120  # `_WIDE_STEPS` after stochastic steps (budget)
_WIDE_RESIDUAL = 2e-5  # relative, at which it ends: every unit is detected, and redundant ones only slow it down
_SLOW_GAIN = 0.3  # the wide fit ends when `_SLOW_STEPS` steps lower the cost by less than this part
_SLOW_STEPS = 6  # see _SLOW_GAIN
_FOUND_RESIDUAL = 1e-3  # relative, below which a slow fit is reduced; above it goes on
_CHEAP = 100.0  # times the cost, that a layer without redundant units has at most before it is fitted again
_DOUBLE_BYTES = 3 * 8  # per entry of the matrix whose inverse gives losses


@dataclass(frozen=True)
class WideFitLimits:
    """How long to go on, and the residual that ends it."""

    deadline: float = np.inf  # of `time.perf_counter`, after which no step is made
    tol: float = 1e-9  # relative root mean square residual below which units are not missed
    target: float = 1e-12  # residual at which the last fit ends: no smaller one is possible
    progress: Callable | None = None  # ``progress(n)`` with the number of steps of a fit

    @property
    def late(self):
        """Whether no further step may be made."""
        return time.perf_counter() >= self.deadline


def fit_wide_layer(problem, n_units, width, rng, limits):
    """Parameters (P,) of a `DownstreamOfKnownUnits`, and their relative root mean square residual.

    A layer of `width` units is fitted by Levenberg-Marquardt from random weights, then reduced to `n_units`, or as far
    as the outputs allow (None), and fitted again, within `WideFitLimits`.

    With twice the true number of units and five outputs per parameter, all of 32 units were detected from 8 of 8 random
    starts; with 1.25 times from 1 of 4. Small weights at the start find those of trained networks in none. Steps
    are damped alike for all parameters: relative to their effects, redundant units run away. A step costs
    ``O(n P^2 + P^3)`` in single precision. Layers of more than 3,000 parameters are first fitted by Adam, whose steps
    cost ``O(P)``, and narrowed.
    """
    with one_blas_thread():
        params = _start(problem, width, rng)
        require_memory(bytes_of_wide_fit(len(params)), f"the fit of {len(params)} parameters")
        large = len(params) > DENSE_PARAMETERS
        if large:
            params = _by_adam(problem, params, rng, limits)
            params = _without_units_that_others_replace(problem, params, n_units)
        params, cost = _fit(problem, params, _LARGE_STEPS if large else _WIDE_STEPS, _WIDE_RESIDUAL, limits)
        found = cost < _FOUND_RESIDUAL**2 * problem.total
        for _ in range(ROUNDS if found else 0):
            fewer = _reduced(problem, params, n_units, max(cost, limits.tol**2 * problem.total))
            if len(fewer) == len(params):
                break
            fewer, after = _fit(problem, fewer, NEAR_STEPS, limits.target, limits)
            if n_units is None and after > max(cost, limits.tol**2 * problem.total):
                break
            params, cost = fewer, after
    return params, float(np.sqrt(cost / problem.total))


def bytes_of_wide_fit(n_parameters):
    """Memory of a fit of so many parameters: a matrix in single precision, its factor, and a product or copy."""
    return 3 * 4 * n_parameters**2


def _start(problem, width, rng):
    """Random weights of the layer, and the output weights that fit the outputs best."""
    m_1, d = problem.n_known, problem.n_known + 1
    biases, norms = np.zeros(m_1), np.ones(m_1)
    W = _WEIGHT_SIZE * rng.standard_normal((d, width)) / np.sqrt(d)
    features = problem.features(problem.join(biases, norms, W, np.zeros((width + 1, problem.Y.shape[1]))))
    G = np.column_stack([problem.activation(features @ W), np.ones(len(features))])
    A = G.T @ G
    A.flat[:: len(A) + 1] += _RIDGE * len(G)
    return problem.join(biases, norms, W, lapack.solve(A, G.T @ problem.Y))


def _by_adam(problem, params, rng, limits):
    """Parameters after stochastic steps on all of them, in single precision."""
    parts = [part.astype(np.float32) for part in problem.split(params)]
    data = problem.Z.astype(np.float32), problem.Y.astype(np.float32)
    adam = Adam(parts, (_FIRST_RATE, _FIRST_RATE, _RATE, _RATE))
    for step, (Z, Y) in zip(range(_ADAM_STEPS), batches(data, _BATCH, rng), strict=False):
        if step % _LATE_EVERY == 0 and limits.late:
            break
        adam.step(_gradients(problem.activation, parts, Z, Y), 0.5 + 0.5 * math.cos(math.pi * step / _ADAM_STEPS))
    return problem.join(*(part.astype(float) for part in parts))


def _without_units_that_others_replace(problem, params, n_units):
    """Parameters without the units that the output weights of the others replace, nearly."""
    W, V = problem.split(params)[2:]
    G = np.column_stack([problem.activation(problem.features(params) @ W), np.ones(len(problem.Z))])
    cost = problem.cost(params)
    units, losses, left = losses_in_turn(np.kron(G.T @ G, np.eye(V.shape[1])), V, cost)
    n_removed = int(np.sum(np.cumprod(losses < _REMOVED * cost)))
    n_removed = max(min(n_removed, len(units) - max(n_units or 1, int(_KEPT * len(units)))), 0)
    if n_removed == 0:
        return params
    return _of_units(problem, params, np.sort(units[n_removed:]), left[n_removed])


def _of_units(problem, params, kept, V):
    """Parameters of some units, with other output weights."""
    biases, norms, W, _ = problem.split(params)
    return problem.join(biases, norms, W[:, kept], np.vstack([V[kept], V[-1:]]))


def _gradients(activation, parts, Z, Y):
    """Of half the mean square of the residuals by biases, norms, W and V."""
    biases, norms, W, V = parts
    first, first_slopes = activation.jet(Z * norms + biases, 1)
    G, slopes = activation.jet(first @ W[:-1] + W[-1], 1)
    residual = (G @ V[:-1] + V[-1] - Y) / np.float32(len(Z))
    back = residual @ V[:-1].T * slopes
    by_first = back @ W[:-1].T * first_slopes
    by_W = np.vstack([first.T @ back, back.sum(axis=0)])
    by_V = np.vstack([G.T @ residual, residual.sum(axis=0)])
    return by_first.sum(axis=0), np.sum(by_first * Z, axis=0), by_W, by_V


def _fit(problem, params, n_steps, residual, limits):
    """Steps of Levenberg-Marquardt until a relative residual is reached: parameters and cost."""
    found = _FOUND_RESIDUAL if len(params) > DENSE_PARAMETERS else max(residual, limits.tol)
    costs, done = [problem.cost(params)], found**2 * problem.total

    def stop(n_iter, cost):
        costs.append(cost)
        if limits.progress is not None:
            limits.progress(n_iter)
        slow = len(costs) > _SLOW_STEPS and cost > (1.0 - _SLOW_GAIN) * costs[-1 - _SLOW_STEPS]
        return limits.late or (slow and cost < done)

    options = {"max_iter": n_steps, "target": residual**2 * problem.total, "ftol": COARSE_FTOL**2, "callback": stop}

    def linearize(x):
        return DenseNormalEquations(*problem.normal_equations(x, single=True), uniform=True)

    result = levenberg_marquardt(problem.cost, linearize, params, **options)
    return result.x, result.cost


def _reduced(problem, params, n_units, cost):
    """Parameters without the units whose loss costs least, down to `n_units` or until costs exceed `cost` clearly."""
    A, _ = problem.normal_equations(params, single=not memory_allows(_DOUBLE_BYTES * len(params) ** 2))
    V = problem.split(params)[3]
    units, losses, left = losses_in_turn(A, V, problem.cost(params))
    cheap = int(np.sum(np.cumprod(losses < _CHEAP * cost)))
    n_removed = max(len(units) - n_units, 0) if n_units is not None else min(cheap, len(units) - 1)
    if n_removed == 0:
        return params
    return _of_units(problem, params, np.sort(units[n_removed:]), left[n_removed])


def losses_in_turn(A, V, cost):
    """The units in the order in which they are removed, the cost after each removal, and the output weights before it.

    Optimal brain surgeon (Hassibi and Stork, 1993) for units: without unit j, all other parameters follow to first
    order. A (P, P) is the Gauss-Newton matrix, whose last parameters are V (m + 1, m_L), `cost` that of
    all units. The inverse is updated after every removal; only its part for V is needed.
    """
    m, m_L = V.shape[0] - 1, V.shape[1]
    n_before = len(A) - V.size
    columns = np.eye(len(A), V.size, -n_before, dtype=A.dtype)
    factor, _ = damped_cholesky(A, RIDGE_OF_PRODUCTS * float(np.mean(np.diag(A))))
    inverse = scipy.linalg.cho_solve((factor, False), columns, check_finite=False)[n_before:].astype(float)
    v, alive, order, losses, left = V.ravel().copy(), np.ones(m, dtype=bool), [], [], []
    for _ in range(m):
        blocks = inverse.reshape(m + 1, m_L, m + 1, m_L)[np.arange(m), :, np.arange(m)]
        each, loss = v.reshape(m + 1, m_L)[:m, :, None], np.full(m, np.inf)
        loss[alive] = np.sum(each[alive] * lapack.solve(blocks[alive], each[alive]), axis=(1, 2))
        j = int(np.argmin(loss))
        left.append(v.reshape(m + 1, m_L).copy())
        cost += max(float(loss[j]), 0.0)
        order.append(j)
        losses.append(cost)
        mine = slice(j * m_L, (j + 1) * m_L)
        gain = lapack.solve(inverse[mine, mine], inverse[mine]).T
        v, inverse, alive[j] = v - gain @ v[mine], inverse - gain @ inverse[mine], False
    return np.array(order), np.array(losses), left
