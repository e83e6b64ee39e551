"""A network from directions and biases that are known up to signs: linear regression on ridges, and few units for it.

``relu(t) = (|t| + t) / 2`` and ``relu(-t) = (|t| - t) / 2``: up to linear functions, both signs of a unit are the same
feature ``|w . x + b|``. The eight features a unit that Lemma D.12 of Awasthi, Tang and Vijayaraghavan lists, together
with x and 1, span no more than that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from skident.budget.constants import BATCH_NUMBERS
from skident.linalg import svd
from skident.network import FeedforwardNetwork

__all__ = ["RidgeRegression", "consolidate", "regress_on_features", "ridge_features"]

_COLLINEAR = 1e-12  # of the largest singular value of the scaled features, below which a combination is not used


class RidgeRegression(NamedTuple):
    """``g(x) = sum_i c_i |w_i . x + b_i| + v . x + c``: what `regress_on_features` fitted.

    Attributes
    ----------
    coefficients : ndarray of shape (m,)
    linear : ndarray of shape (D,)
    intercept : float
    loss : float
        Weighted mean of squared residuals over the rows that counted.
    n_used : int
        Rows that counted.
    """

    coefficients: np.ndarray
    linear: np.ndarray
    intercept: float
    loss: float
    n_used: int


def ridge_features(X, W, b):
    """Features ``(|w_1 . x + b_1|, ..., |w_m . x + b_m|, x, 1)`` of rows x.

    X (n, D), W (D, m), b (m,); returns (n, m + D + 1).
    """
    return np.column_stack([np.abs(X @ W + b), X, np.ones(len(X))])


def _stacked_triangle(X, y, W, b, tau, sample_weight):
    """The triangle R of a QR decomposition of the weighted rows (features, y), with how many rows and how much weight.

    Chunk by chunk: the triangle so far stands for all rows before. That keeps the digits which normal equations lose.
    """
    width = W.shape[1] + X.shape[1] + 2
    R, n_used, mass = np.zeros((0, width)), 0, 0.0
    rows = max(width, BATCH_NUMBERS // width)
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        block = np.column_stack([ridge_features(np.asarray(X[part], dtype=np.float64), W, b), y[part]])
        used = np.linalg.norm(block[:, :-1], axis=1) <= tau
        weights = used.astype(np.float64) if sample_weight is None else used * sample_weight[part]
        n_used, mass = n_used + int(used.sum()), mass + float(weights.sum())
        R = np.linalg.qr(np.concatenate([R, np.sqrt(weights)[:, None] * block]), mode="r")
    return R, n_used, mass


def _within(values, projections, radius):
    """Coordinates ``s_j p_j / (s_j^2 + t)`` with the smallest t >= 0 that brings their norm down to the radius."""

    def solution(t):
        return values * projections / (values**2 + t)

    if np.linalg.norm(solution(0.0)) <= radius * (1.0 + 1e-12):
        return solution(0.0)
    # At this t the norm is at most half the radius; the root is searched in log t, over all its magnitudes.
    high = 2.0 * np.linalg.norm(values * projections) / radius
    low = 1e-18 * min(values[-1] ** 2, high)
    root = brentq(lambda s: np.linalg.norm(solution(math.exp(s))) - radius, math.log(low), math.log(high), xtol=1e-12)
    return solution(math.exp(root))


def _solve(R, max_norm):
    """Least squares from the triangle; with a bound on the norm, in the features as they are, else scaled ones."""
    A, target = R[:, :-1], R[:, -1]
    scale = np.linalg.norm(A, axis=0)
    scale = np.where((scale > 0) & (max_norm == np.inf), scale, 1.0)
    U, values, Vt = svd(A / scale, full_matrices=False)
    kept = values > _COLLINEAR * values[0]
    coordinates = _within(values[kept], U[:, kept].T @ target, max_norm)
    solution = (Vt[kept].T @ coordinates) / scale
    return solution, float(np.sum((target - A @ solution) ** 2))


def _check_sizes(X, y, W, b, sample_weight):
    if X.ndim != 2 or W.ndim != 2 or W.shape[0] != X.shape[1] or b.shape != (W.shape[1],):
        raise ValueError(f"X must be (n, D), W (D, m) and b (m,), got {X.shape}, {W.shape} and {b.shape}.")
    if y.shape != (len(X),) or (sample_weight is not None and sample_weight.shape != y.shape):
        seen = "" if sample_weight is None else f" and sample_weight {sample_weight.shape}"
        raise ValueError(f"y must have shape ({len(X)},) like the rows of X, got {y.shape}{seen}.")


def regress_on_features(X, y, W, b, *, tau=math.inf, max_norm=math.inf, sample_weight=None):
    """Least squares of y on ``|w_i . x + b_i|``, x and 1: the regression of Algorithm 5 of Awasthi et al. (2021).

    Minimizes ``sum_n s_n (y_n - beta . phi(x_n))^2 1(||phi(x_n)|| <= tau)`` over ``||beta|| <= max_norm``.

    X (n, D), y (n,), W (D, m), b (m,), sample_weight (n,).

    ``O(n (m + D)^2)`` by a QR decomposition that is updated chunk by chunk, memory for some megabytes and
    ``(m + D)^2`` numbers. Features that are combinations of others (a unit given twice, a bias so large that no row
    gets to the other side) share their coefficients: the solution has minimal norm.
    """
    y, W, b = (np.asarray(x, dtype=np.float64) for x in (y, W, b))
    sample_weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    _check_sizes(X, y, W, b, sample_weight)
    m, width = W.shape[1], W.shape[1] + X.shape[1] + 1
    R, n_used, mass = _stacked_triangle(X, y, W, b, tau, sample_weight)
    if n_used < width or not mass > 0:
        raise ValueError(
            f"{n_used} of {len(X)} rows have features within tau={tau:.3g}, but {width} coefficients are unknown; "
            "give more rows or a larger tau."
        )
    solution, rss = _solve(R, max_norm)
    return RidgeRegression(solution[:m], solution[m:-1], float(solution[-1]), rss / mass, n_used)


def consolidate(W, b, plus, minus, linear, intercept, *, tol=1e-12):
    """``sum_i (p_i relu(w_i . x + b_i) + q_i relu(-w_i . x - b_i)) + v . x + c`` with at most m + 2 units: Claim D.14.

    ``relu(-t) = relu(t) - t``, so the pairs become ``p_i + q_i`` times one unit, and a linear function ``v - sum_i q_i
    w_i``, which is ``beta (relu(w_0 . x) - relu(-w_0 . x))``. The constant becomes the bias of the output.

    W (D, m), b, plus, minus (m,), linear (D,).
    """
    W, b, plus, minus, linear = (np.asarray(x, dtype=np.float64) for x in (W, b, plus, minus, linear))
    if W.ndim != 2 or not b.shape == plus.shape == minus.shape == (W.shape[1],) or linear.shape != (W.shape[0],):
        raise ValueError(
            f"W must be (D, m), b, plus and minus (m,), linear (D,), got {W.shape}, {b.shape}, {plus.shape}, "
            f"{minus.shape} and {linear.shape}."
        )
    outer, rest = plus + minus, linear - W @ minus
    terms = np.linalg.norm(linear) + float(np.abs(minus) @ np.linalg.norm(W, axis=0))
    size, used = float(np.linalg.norm(rest)), outer != 0
    hidden, shifts, outer = W[:, used], b[used], outer[used]
    if size > tol * terms:
        w = rest / size
        hidden, shifts = np.column_stack([hidden, w, -w]), np.append(shifts, [0.0, 0.0])
        outer = np.append(outer, [size, -size])
    if not len(outer):
        hidden, shifts, outer = np.eye(len(W))[:, :1], np.zeros(1), np.zeros(1)
    constant = float(intercept) - float(minus @ b)
    return FeedforwardNetwork([hidden, outer[:, None]], [shifts, [constant]], "relu")
