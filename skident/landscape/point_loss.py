"""The loss at a point, with a rigorous upper bound."""

from dataclasses import dataclass

import flint
import numpy as np
from flint import arb, arb_mat

from .bounded_sums import MAX_WORK, BoundedSums, collinearity, gamma, inflated, norm_upper_bound, normalized, precisions
from .exact_arithmetic import remaining_square, rounded_down

# Bits: five factors of 53 each, and as much again for what cancels.
_PRECISION = 600
# Collinearity above which linear terms fitted in double precision are as good as the best ones.
_KNOWN = 1e-6


@dataclass(frozen=True)
class PointLoss:
    """The loss at a point."""

    value: float  # to rounding
    above: float  # proven upper bound


def point_loss(problem, W, v, accuracy):
    """f at ``M = W^T D_v W``, and a proven upper bound of it for the exact real numbers in X, y, W and v.

    Constant and linear terms are fitted in floating point and then taken as given, so the optimal ones can only be
    better. The residual is computed with a bound of its error for each sample, ``gamma |x|^T (|W|^T |D_v| |W|) |x|``
    and that of the terms. If large units cancel so that this is less accurate than `accuracy`, everything is done in
    balls of 600 bits, the optimal terms included. The bound is infinite on overflow. O(n d^2 + k d^2); in balls, up to
    ``n d k = 2e7``, that times 20 ns and some microseconds for each of the n k units' outputs.
    """
    # The best linear terms are known to double precision where the inputs are well conditioned.
    terms_are_known = not problem.fit_linear or collinearity(problem) > _KNOWN
    for dtype in precisions(problem):
        found = _scaled_loss(problem, W, v, dtype)
        if found.above <= accuracy or (found.above - found.value <= accuracy and terms_are_known):
            return found
    balls = _in_balls(problem, W, v) if problem.n * problem.d * len(v) <= MAX_WORK else found
    return balls if np.isfinite(balls.above) else found


def _scaled_loss(problem, W, v, dtype):
    """The loss in floating point, scaled by powers of two; the bound is infinite if the scaling is not exact."""
    normal, exponents, y_exponent = normalized(problem, centered=False)
    if normal is None:
        return PointLoss(np.nan, np.inf)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        U, w = np.ldexp(W, exponents), np.ldexp(v, -y_exponent)
        exact = np.array_equal(np.ldexp(U, -exponents), W) and np.array_equal(np.ldexp(w, y_exponent), v)
        found = _in_floats(BoundedSums(normal, dtype), U, w)
        value, above = np.ldexp([found.value, inflated(found.above)], 2 * y_exponent)
        tiny = not value >= 1e-280 and found.value > 0
    return PointLoss(float(value), float(above) if exact and not tiny and np.isfinite(above) else np.inf)


def _in_floats(rows, W, v):
    """The loss of a normalized problem and an upper bound of it."""
    problem = rows.problem
    U, sizes = W.astype(rows.dtype), np.abs(W).T @ (np.abs(v)[:, None] * np.abs(W))
    M = U.T @ (v[:, None] * U)
    M = (M + M.T) / 2
    outputs = rows.forms(M) - rows.y
    b, c = _terms(problem, lambda b, c: outputs + rows.terms(b, c))
    residual = outputs + rows.terms(b, c)
    X, y = np.abs(problem.X), np.abs(rows.y).astype(float)
    rounding = gamma(len(W) + 2 * rows.d + 12, rows.dtype) * np.sum((X @ sizes) * X, axis=1)
    rounding += gamma(rows.d + 12, rows.dtype) * (X @ np.abs(b) + abs(c) + y)
    root = np.sqrt(rows.weighted_square(residual)) + norm_upper_bound(problem.roots * rounding)
    value, above = 0.5 * float(residual @ (rows.weights * residual)) / rows.n, 0.5 * inflated(root**2) / rows.n
    if problem.alpha > 0:
        half, size = 0.5 * problem.alpha, norm_upper_bound(M)
        larger = size + gamma(len(W) + 4, rows.dtype) * norm_upper_bound(sizes)
        linear = norm_upper_bound(b) ** 2 / problem.linear_weight
        value, above = value + half * (size**2 + linear), above + half * inflated(larger**2 + linear)
    return PointLoss(value, above)


def _terms(problem, residual_at, repeats=3):
    """Approximately optimal linear and constant terms, as floats that are then taken as given."""
    b, c = np.zeros(problem.d), 0.0
    for _ in range(repeats if problem.fit_linear or problem.fit_intercept else 0):
        left = np.asarray(residual_at(b, c)).astype(float)
        if problem.fit_linear and problem.alpha == 0:
            b = b + problem.remaining(left)[1]
        elif problem.fit_linear:  # the ridge is on all of b, so what is left is refitted with b
            b = problem.remaining(left - problem.linear_inputs @ b)[1]
        if problem.fit_intercept:
            c = c - float(np.average(np.asarray(residual_at(b, c)).astype(float), weights=problem.weights))
    return b, c


def _in_balls(problem, W, v):
    """The loss of any problem in ball arithmetic."""
    with flint.ctx.workprec(_PRECISION):
        X, U = arb_mat(problem.X.tolist()), arb_mat(W.tolist())
        weights, targets = [arb(a) for a in v.tolist()], [arb(a) for a in problem.y.tolist()]
        outputs = [
            sum((a * z * z for a, z in zip(weights, row)), -target)
            for row, target in zip((X * U.transpose()).tolist(), targets)
        ]
        left = remaining_square(problem, outputs)
        if left is None:
            return PointLoss(np.nan, np.inf)
        loss = left / (2 * problem.n)
        if problem.alpha > 0:
            D = arb_mat([[a * z for z in row] for a, row in zip(weights, U.tolist())])
            square = sum((z * z for row in (U.transpose() * D).tolist() for z in row), arb(0))
            loss += arb(problem.alpha) / 2 * square
        value, above = float(loss.mid()), -rounded_down(-loss)
    return PointLoss(value, above) if np.isfinite(above) else PointLoss(value, np.inf)
