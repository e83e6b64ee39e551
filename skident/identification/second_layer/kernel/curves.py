"""Curves: norm, biases and output weights of second-layer units from how Taylor coefficients vary with the input."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import hermite
from scipy.ndimage import maximum_filter

from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

__all__ = ["Curve", "fit_curve", "fit_curves_in_regions", "taylor_term"]

_TINY = 1e-150  # norm below which a direction is zero: its square is still a normal number
_MAX_STEP = 0.7  # of log norm and biases: a factor of two, less than the width of a valley of the cost
# One bias for all points: a grid of starts, of which the best are fitted to a few points and the best of those to all.
_FEW_POINTS = 150  # budget: three parameters are fitted
_N_STARTS = 60  # budget: about a tenth of the grid
_N_LAST = 3  # candidates for the minimum over all points: minima that are equal on few points differ by rounding
_NORM_GRID = np.exp(np.linspace(-2.5, 2.2, 24))  # times the spread of the inputs: nearly linear to nearly a step
_PLACE_GRID = np.linspace(-1.0, 1.0, 21)  # of the center of the step, relative to the range where it is visible
# One bias per region: from every norm of a grid, the highest local maxima over pairs of biases.
_REGION_NORM_GRID = np.geomspace(0.1, 2.5, 20)  # weight norms over free units; neighbors differ by less than _MAX_STEP
_REGION_BIAS_GRID = np.linspace(-4.0, 4.0, 41)  # beyond, coefficients are 1e-3 of their largest or less
_N_MAXIMA = 8  # of them per norm: for short units with small biases the true valley is narrow, and rarely the highest
_MAX_LOG_NORM = 3.0  # of a unit in regions: 20, beyond which it is a step
_MAX_BIAS = 5.0  # of a unit in regions: beyond, its coefficients are 2e-4 of their largest or less


def taylor_term(activation, order):
    """A function of arrays y that gives ``g^(p)(y) / p!`` and its derivative, for tanh or erf and p >= 1.

    Examples
    --------
    >>> from skident.identification.second_layer.kernel.curves import taylor_term
    >>> print([round(float(x), 6) for x in taylor_term("tanh", 3)(0.0)])
    [-0.333333, 0.0]
    """
    scale = 1.0 / math.factorial(order)
    if activation == "erf":
        first, second = (np.eye(order + 1)[order - 1 + d] * 2.0 / np.sqrt(np.pi) for d in (0, 1))

        def term(y):
            bell, sign = np.exp(-np.square(y)), (-1.0) ** (order - 1)
            return scale * sign * bell * hermite.hermval(y, first), -scale * sign * bell * hermite.hermval(y, second)

        return term
    slope, polynomial = np.polynomial.Polynomial([1.0, 0.0, -1.0]), np.polynomial.Polynomial([0.0, scale])
    for _ in range(order):
        polynomial = polynomial.deriv() * slope
    derivative = polynomial.deriv() * slope

    def term(y):
        T = np.tanh(y)
        return polynomial(T), derivative(T)

    return term


@dataclass(frozen=True)
class Curve:
    """A second-layer unit as a function of its input up to norm: norm > 0, bias, output weights (m_L,)."""

    norm: float
    bias: float
    output_weights: np.ndarray
    residual: float


class _CurveProblem:
    """``||C - a v||^2`` with ``a = weights * term(e^z_0 x + z_region)`` and the best v, for many z (B, 1 + G) at once.

    Variable projection for a single column a. `members` (n, G) has a 1 where a point is in a region.
    """

    def __init__(self, x, C, members, term, weights=1.0, max_log_norm=50.0):
        self.x, self.C, self.members, self.term, self.weights = x, C, members, term, weights
        self.max_log_norm = max_log_norm

    def take(self, index):
        return self

    def move(self, z, steps):
        return z + steps

    def _eliminated(self, z):
        """Residuals (B, n, m_L), v (B, m_L), and derivatives (B, 1 + G, n) of a / ||a|| with v eliminated."""
        scaled = np.exp(np.minimum(z[:, :1], self.max_log_norm)) * self.x
        a, slope = self.term(scaled + z[:, 1:] @ self.members.T)
        a, slope = a * self.weights, slope * self.weights
        norms = np.maximum(np.linalg.norm(a, axis=1, keepdims=True), _TINY)
        a, slope = a / norms, slope / norms
        v = a @ self.C
        changes = np.concatenate([(slope * scaled)[:, None], slope[:, None] * self.members.T], axis=1)
        changes = changes - (changes @ a[:, :, None]) * a[:, None]
        return self.C[None] - a[:, :, None] * v[:, None], v, changes

    def cost(self, z):
        cost = np.sum(self._eliminated(z)[0] ** 2, axis=(1, 2))
        return np.where(np.isfinite(cost), cost, np.inf)

    def linearize(self, z):
        residual, v, changes = self._eliminated(z)
        matrix = (changes @ np.swapaxes(changes, 1, 2)) * np.sum(v**2, axis=1)[:, None, None]
        gradient = -np.einsum("bjn,bnm,bm->bj", changes, residual, v)
        return BatchedNormalEquations(matrix, gradient, longest=np.full(z.shape[1], _MAX_STEP))


def fit_curve(x, C, order, term):
    """The `Curve` with ``C = v r^p term(r x + bias)`` by least squares, x (n,) being the input up to the norm r.

    `C` (n, m_L) are coefficients of order p, `term` is that of `taylor_term`. Levenberg-Marquardt in (log r, bias) from
    a grid of starts, v eliminated.
    """
    size = max(float(np.linalg.norm(C)), np.finfo(float).tiny)
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _FEW_POINTS)).astype(int))
    few = _CurveProblem(x[some], C[some] / size, np.ones((len(some), 1)), term)
    everything = _CurveProblem(x, C / size, np.ones((len(x), 1)), term)
    starts = _grid(x)
    starts = starts[np.argsort(few.cost(starts))[:_N_STARTS]]
    fitted = batched_levenberg_marquardt(few, starts, Ending(max_iter=40, damping=1e-2))
    best = fitted.x[np.argsort(fitted.cost)[:_N_LAST]]
    fitted = batched_levenberg_marquardt(everything, best, Ending(max_iter=15, damping=1e-6))
    log_norm, bias = fitted.x[np.argmin(fitted.cost)]
    r = np.exp(log_norm)
    a = r**order * term(r * x + bias)[0]
    v = a @ C / max(float(a @ a), np.finfo(float).tiny)
    return Curve(float(r), float(bias), v, float(np.linalg.norm(C - np.outer(a, v)) / size))


def _grid(x):
    """Starts (504, 2) of (log norm, bias): steps of every width, centered all over the range of x."""
    spread, middle = max(float(x.std()), 1e-9), float(x.mean())
    return np.array(
        [(np.log(r / spread), p * (2.0 + 1.5 * r) - r / spread * middle) for r in _NORM_GRID for p in _PLACE_GRID]
    )


def fit_curves_in_regions(directions, outputs, coefficients, order):
    """Weights W2 (k, n), biases (2, n) and relative residuals (n,) with ``C = v r^p tanh^(p)(r x + bias_region) / p!``.

    `directions` (k, n) are those of W2, `outputs` (2 n_c, k) those of free units at centers in two regions, the first
    region's first; `coefficients` (2 n_c, n). Both regions share norm and output weight. Coefficients are weighted by
    ``prod(1 - h^2)^(p / k)``: their errors are that much larger where free units are half saturated.
    """
    k, n = len(directions), len(outputs) // 2
    weights = np.prod(1.0 - outputs**2, axis=1) ** (order / k)
    term, members = taylor_term("tanh", order), np.repeat(np.eye(2), n, axis=0)
    norms, biases, residuals = [], [], []
    for j, direction in enumerate(directions.T):
        C = (coefficients[:, j] * weights)[:, None]
        C = C / max(np.linalg.norm(C), np.finfo(float).tiny)
        problem = _CurveProblem(outputs @ direction, C, members, term, weights, _MAX_LOG_NORM)
        fitted = batched_levenberg_marquardt(
            problem, _starts_in_regions(problem), Ending(max_iter=40, damping=1e-2, ftol=1e-8)
        )
        best = fitted.x[np.argmin(fitted.cost)]
        norms.append(np.exp(min(best[0], _MAX_LOG_NORM)))
        biases.append(np.clip(best[1:], -_MAX_BIAS, _MAX_BIAS))
        residuals.append(np.sqrt(fitted.cost.min()))
    return directions * np.array(norms), np.array(biases).T, np.array(residuals)


def _starts_in_regions(problem):
    """Starts (log norm, bias, bias), (n, 3): highest local maxima of the explained part over both biases."""
    n, starts = len(problem.x) // 2, []
    for r in _REGION_NORM_GRID:
        a = problem.term(r * problem.x + _REGION_BIAS_GRID[:, None])[0] * problem.weights
        first, second = ((a[:, part] @ problem.C[part], np.sum(a[:, part] ** 2, axis=1)) for part in _halves(n))
        explained = np.sum((first[0][:, None] + second[0][None]) ** 2, axis=-1) / (first[1][:, None] + second[1])
        maxima = np.argwhere(maximum_filter(explained, 3, mode="nearest") == explained)
        maxima = maxima[np.argsort(-explained[tuple(maxima.T)])[:_N_MAXIMA]]
        starts += [(np.log(r), _REGION_BIAS_GRID[i], _REGION_BIAS_GRID[j]) for i, j in maxima]
    return np.array(starts)


def _halves(n):
    return slice(n), slice(n, None)
