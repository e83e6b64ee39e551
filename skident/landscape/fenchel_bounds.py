"""Bounds of convex losses over quadratic networks by Fenchel duality, proven with the rounding of double precision.

For any u in the domain of the conjugate, with sum 0 if there is an intercept, every network's loss is at least
``-mean conjugate(u) - |R|^2 / (2 alpha)``, R being the parts of ``1/n sum_i u_i (x_i x_i^T, x_i)`` along which output
weights of the given signs can descend. Without ridge it is at least ``-mean conjugate(u) - |R| radius`` for all
networks whose parameters have at most the norm `radius`. With weights w of the samples, u is ``w_i`` times a number in
the domain, and the first term is the mean of ``w_i conjugate(u_i / w_i)``.
"""

import math
from dataclasses import dataclass

import numpy as np

from skident.budget.constants import EPS, FEW_ROUNDS, NULL_EIGENVALUE, ROUNDINGS

from .bounded_sums import BLOCK
from .quadratic_form import quadratic_form

_BITS = 52  # of the dual variables, so that their sum is exact as integers


@dataclass(frozen=True)
class DualBound:
    """A lower bound of the loss of all networks whose parameters have a norm of at most `radius`."""

    value: float
    radius: float = np.inf


def loss_upper_bound(problem, W, v, point):
    """An upper bound of the exact loss of the network at a `LossPoint`, with its linear and constant terms."""
    X, y, loss = np.abs(problem.X), problem.y, problem.loss
    gamma = (4 * problem.d + len(v) + 20) * EPS
    sizes = (X @ np.abs(W).T) ** 2 @ np.abs(v) + np.abs(problem.side_features) @ np.abs(point.side)
    error = gamma * sizes
    values = loss.value(point.outputs, y) + loss.slope_bound(point.outputs, y, error) * error
    values = values + ROUNDINGS * EPS * loss.magnitude(point.outputs, y)
    M = quadratic_form(W, v)
    size = float(np.linalg.norm(M) + gamma * np.linalg.norm(quadratic_form(np.abs(W), np.abs(v))))
    penalized = point.side[: len(point.side) - int(problem.terms.fit_intercept)]
    ridge = 0.5 * problem.alpha * (size**2 + float(penalized @ penalized)) * (1.0 + gamma)
    return (math.fsum(problem.weights * values) / problem.n + ridge) * (1.0 + 4.0 * EPS)


def dual_lower_bound(problem, u, signs, slack):
    """The bound at dual variables near u; without ridge for the largest radius that costs at most `slack`."""
    u = _on_grid(problem, u)
    if u is None:
        return DualBound(-np.inf, np.inf if problem.alpha else 0.0)
    loss, y, each = problem.loss, problem.y, u / problem.weights
    conjugates = loss.conjugate(each, y) + ROUNDINGS * EPS * loss.conjugate_magnitude(each, y)
    value = -math.fsum(problem.weights * conjugates) / problem.n
    value -= 4.0 * EPS * math.fsum(np.abs(problem.weights * conjugates)) / problem.n
    norm = _slope_norm(problem, u, signs)
    if problem.alpha > 0:
        return DualBound(float(value - norm**2 / (2.0 * problem.alpha) * (1.0 + 8.0 * EPS)))
    if norm == 0.0:
        return DualBound(float(value))
    return DualBound(float(value - slack), float(slack / norm * (1.0 - 8.0 * EPS)))


def dual_candidates(problem, point):
    """Yield dual variables at a point: its slopes, and these projected on the equations of the dual problem."""
    u = problem.weights * point.slopes
    yield u
    if problem.alpha > 0:
        return
    Phi, weights = problem.features, problem.weights * problem.loss.curvature(point.outputs, problem.y)
    values, vectors = np.linalg.eigh((Phi * weights[:, None]).T @ Phi)
    kept = values > NULL_EIGENVALUE * max(float(values[-1]), 0.0)
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    for _ in range(FEW_ROUNDS):
        u = u - weights * (Phi @ (inverse @ (Phi.T @ u)))
    yield u


def _on_grid(problem, u):
    """u rounded to multiples of a power of two, within the domain and with sum 0 if there is an intercept, or None."""
    lower, upper = (problem.weights * (1.0 - 4.0 * EPS) * bound for bound in problem.loss.domain(problem.y))
    size = float(np.abs(u).max(initial=0.0))
    if not 0.0 < size < np.inf:
        return np.zeros_like(u) if size == 0.0 else None
    unit = math.ldexp(1.0, math.frexp(size)[1] - _BITS)
    low, high = np.ceil(lower / unit), np.floor(upper / unit)
    k = np.clip(np.round(u / unit), low, high)
    if problem.terms.fit_intercept:
        rest = sum(int(entry) for entry in k)
        # From the entries farthest from the ends of their domain, where the conjugate is flattest: a step costs least.
        slack = np.minimum(k - low, high - k)
        for i in np.argsort(-slack):
            if not rest:
                break
            step = math.copysign(min(abs(rest), int(min(slack[i], 2.0**_BITS)) // 2), rest)
            k[i] -= step
            rest -= int(step)
        if rest:
            return None
    return k * unit


def _slope_norm(problem, u, signs):
    """Upper bound of the norm of the parts of ``1/n sum_i u_i (x_i x_i^T, x_i)`` that allow descent."""
    # Without ridge R is rounding, and decides how far the proof reaches: extended precision, if the platform has it.
    dtype = np.float64 if problem.alpha > 0 else np.longdouble
    X, d, u = problem.X.astype(dtype), problem.d, u.astype(dtype)
    R, sizes = np.zeros((d, d), dtype), np.zeros((d, d))
    side, side_sizes = np.zeros(d, dtype), np.zeros(d)
    for start in range(0, problem.n, BLOCK):
        rows, part = X[start : start + BLOCK], u[start : start + BLOCK, None] / problem.n
        weighted = rows * part
        R, side = R + weighted.T @ rows, side + weighted.sum(axis=0)
        weighted, rows = np.abs(weighted).astype(np.float64), np.abs(rows).astype(np.float64)
        sizes, side_sizes = sizes + weighted.T @ rows, side_sizes + weighted.sum(axis=0)
    gamma = 2.0 * (BLOCK + problem.n // BLOCK + 10) * float(np.finfo(dtype).eps)
    R, side = R.astype(np.float64), side.astype(np.float64)
    values = np.linalg.eigvalsh(0.5 * (R + R.T))
    # The projection on a cone is nonexpansive; eigenvalues have a backward error of a few d eps.
    error = gamma * float(np.linalg.norm(sizes)) + 20.0 * d * EPS * float(np.linalg.norm(R))
    forms = float(np.linalg.norm(signs.descent_part(values))) + error
    linear = problem.root * (float(np.linalg.norm(side)) + gamma * float(np.linalg.norm(side_sizes)))
    return math.hypot(forms, linear) * (1.0 + 8.0 * EPS)
