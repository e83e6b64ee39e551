"""Curves: norm, biases and output weights of second-layer units from how Taylor coefficients vary with the input."""

import math

import numpy as np
from numpy.polynomial import hermite

from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt

_MAX_LOG_NORM = 50.0  # beyond, a unit is a step
_MAX_STEP = 0.7  # of log norm and biases: a factor of two, less than the width of a valley of the cost
_FEW_POINTS = 150  # budget: three parameters are fitted
_GRID_STARTS = 12  # of the grid that are refined (budget)
_N_LAST = 3  # candidates for the minimum over all points: minima that are equal on few points differ by rounding
_NORM_GRID = np.exp(np.linspace(-2.5, 2.2, 24))  # times the spread of the inputs: nearly linear to nearly a step
_PLACE_GRID = np.linspace(-1.0, 1.0, 21)  # of the center of the step, relative to the range where it is visible


def taylor_term(activation, order):
    """A function of arrays y that gives ``g^(p)(y) / p!``, for tanh, sigmoid or erf and p >= 1.

    Examples
    --------
    >>> from skident.identification.smooth.curves import taylor_term
    >>> print([round(float(taylor_term(name, 3)(0.0)), 6) for name in ("tanh", "sigmoid", "erf")])
    [-0.333333, -0.020833, -0.376126]
    """
    scale = 1.0 / math.factorial(order)
    if activation == "erf":
        series = np.eye(order)[order - 1] * scale * (-1.0) ** (order - 1) * 2.0 / np.sqrt(np.pi)
        return lambda y: np.exp(-np.square(y)) * hermite.hermval(y, series)
    slope, polynomial = np.polynomial.Polynomial([1.0, 0.0, -1.0]), np.polynomial.Polynomial([0.0, scale])
    for _ in range(order):
        polynomial = polynomial.deriv() * slope
    if activation == "sigmoid":  # (1 + tanh(y / 2)) / 2
        return lambda y: 0.5 ** (order + 1) * polynomial(np.tanh(0.5 * y))
    return lambda y: polynomial(np.tanh(y))


def fit_curve(x, C, term, few=_FEW_POINTS):
    """Norm r and bias d with which ``C = term(r x + d) v`` by least squares, and the relative residual.

    x (n,) is the input of a unit up to its norm, `C` (n, P) are coefficients, v (P,) is eliminated; `term` is that of
    `taylor_term`. From a grid of starts, fitted to `few` points, and the best of those to all.
    """
    size = max(float(np.linalg.norm(C)), np.finfo(float).tiny)
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), few)).astype(int))
    first, everything = (_problem(x[rows], C[rows] / size, term) for rows in (some, slice(None)))
    starts = _grid(x)
    starts = starts[np.argsort(first.cost(starts))[:_GRID_STARTS]]
    fitted = batched_levenberg_marquardt(first, starts, Ending(max_iter=20, damping=1e-2, ftol=1e-3))
    best = fitted.x[np.argsort(fitted.cost)[:_N_LAST]]
    fitted = batched_levenberg_marquardt(everything, best, Ending(max_iter=15, damping=1e-6, ftol=1e-6))
    log_norm, bias = fitted.x[np.argmin(fitted.cost)]
    return float(np.exp(log_norm)), float(bias), float(np.sqrt(fitted.cost.min()))


def _problem(x, C, term):
    """The separable least squares in (log norm, bias)."""

    def columns(z):
        return term(np.exp(np.minimum(z[:, :1], _MAX_LOG_NORM)) * x + z[:, 1:])[..., None]

    return BatchedSeparableProblem(columns, C, longest=np.full(2, _MAX_STEP))


def _grid(x):
    """Starts (504, 2) of (log norm, bias): steps of every width, centered all over the range of x."""
    spread, middle = max(float(x.std()), 1e-9), float(x.mean())
    return np.array(
        [(np.log(r / spread), p * (2.0 + 1.5 * r) - r / spread * middle) for r in _NORM_GRID for p in _PLACE_GRID]
    )
