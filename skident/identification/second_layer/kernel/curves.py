"""Length, shift and output weights of second-layer units, from how their Taylor coefficients vary over patches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import hermite

from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

__all__ = ["Curve", "fit_curve", "taylor_term"]

_SOME = 150  # points that starts are compared on
_STARTS, _LAST = 60, 3  # starts that are fitted there, and those of them that are fitted to all points
_LENGTHS = np.exp(np.linspace(-2.5, 2.2, 24))  # tried, times the spread of the inputs
_PLACES = np.linspace(-1.0, 1.0, 21)
_LONGEST = np.array([0.7, 0.7])  # step of (log length, shift)


def taylor_term(activation, order):
    """``g^(p) / p!`` and its derivative.

    Parameters
    ----------
    activation : {"tanh", "erf"}
    order : int
        p >= 1.

    Returns
    -------
    callable
        Arrays y to two arrays of their shape.

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
    """One second-layer unit as a function of ``x = W_k . h``.

    Attributes
    ----------
    length : float
        r > 0.
    shift : float
    readout : ndarray of shape (m_L,)
        v.
    misfit : float
        Relative.
    """

    length: float
    shift: float
    readout: np.ndarray
    misfit: float


def fit_curve(x, C, order, term):
    """Length r, shift gamma and readout v with ``C = v r^p g^(p)(r x + gamma) / p!``, by least squares.

    Parameters
    ----------
    x : ndarray of shape (n,)
        What the unit reads at every point, up to its length.
    C : ndarray of shape (n, m_L)
        Coefficients of its power there.
    order : int
        p.
    term : callable
        See `taylor_term`.

    Returns
    -------
    Curve

    Notes
    -----
    Levenberg-Marquardt in (log r, gamma), v eliminated, from the best 60 of a grid of 504 starts.
    """
    size = max(float(np.linalg.norm(C)), np.finfo(float).tiny)
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _SOME)).astype(int))
    few = _Problem(x[some], C[some] / size, term)
    starts = _starts(x)
    costs = few.cost(starts)
    found = batched_levenberg_marquardt(few, starts[np.argsort(costs)[:_STARTS]], Ending(max_iter=40, damping=1e-2))
    best = found.x[np.argsort(found.cost)[:_LAST]]
    found = batched_levenberg_marquardt(_Problem(x, C / size, term), best, Ending(max_iter=15, damping=1e-6))
    r, shift = np.exp(found.x[np.argmin(found.cost), 0]), found.x[np.argmin(found.cost), 1]
    a = r**order * term(r * x + shift)[0]
    v = a @ C / max(float(a @ a), np.finfo(float).tiny)
    return Curve(float(r), float(shift), v, float(np.linalg.norm(C - np.outer(a, v)) / size))


def _starts(x):
    """(log r, gamma) on a grid, (504, 2)."""
    spread, middle = max(float(x.std()), 1e-9), float(x.mean())
    return np.array(
        [(np.log(r / spread), p * (2.0 + 1.5 * r) - r / spread * middle) for r in _LENGTHS for p in _PLACES]
    )


class _Problem:
    """``||C - a v||^2`` with ``a = g^(p)(e^z0 x + z1)`` and the best v, for many z (B, 2) at once."""

    def __init__(self, x, C, term):
        self.x, self.C, self.term = x, C, term

    def take(self, index):
        return self

    def move(self, z, steps):
        return z + steps

    def residual(self, z):
        """What is left (B, n, m_L), v (B, m_L), directions a over their lengths (B, n), their changes (B, 2, n)."""
        moved = np.exp(np.minimum(z[:, :1], 50.0)) * self.x
        a, change = self.term(moved + z[:, 1:])
        lengths = np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-150)
        a, change = a / lengths, change / lengths
        v = a @ self.C
        changes = np.stack([change * moved, change], axis=1)
        changes = changes - (changes @ a[:, :, None]) * a[:, None]
        return self.C[None] - a[:, :, None] * v[:, None], v, changes

    def cost(self, z):
        cost = np.sum(self.residual(z)[0] ** 2, axis=(1, 2))
        return np.where(np.isfinite(cost), cost, np.inf)

    def linearise(self, z):
        left, v, changes = self.residual(z)
        matrix = (changes @ np.swapaxes(changes, 1, 2)) * np.sum(v**2, axis=1)[:, None, None]
        gradient = -np.einsum("bjn,bnm,bm->bj", changes, left, v)
        return BatchedNormalEquations(matrix, gradient, longest=_LONGEST)
