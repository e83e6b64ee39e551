"""Length, shifts and output weights of second-layer units, from how their coefficients vary inside two cells."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import maximum_filter

from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

from .curves import taylor_term

__all__ = ["fit_curves_of_regions"]

_LENGTHS, _SHIFTS = np.geomspace(0.1, 2.5, 20), np.linspace(-4.0, 4.0, 41)  # of starts
_OF_A_LENGTH = 8  # best pairs of shifts that are starts
_LONGEST = np.array([0.7, 0.7, 0.7])  # of a step in (log length, shift, shift)
_LARGEST, _SATURATED = 3.0, 5.0  # log length, and shift beyond which nothing is seen of it


def fit_curves_of_regions(found):
    """Length and shifts of every unit with ``C = v r^p tanh^(p)(r x + c_cell) / p!``, by least squares.

    Parameters
    ----------
    found : CenterPowers

    Returns
    -------
    rows : ndarray of shape (k, n)
        With their lengths.
    shifts : ndarray of shape (2, n)
    misfits : ndarray of shape (n,)
        Relative.

    Notes
    -----
    Coefficients are weighted by ``prod(1 - h^2)^(p / k)``, as their errors are that much larger where free units are
    half saturated. Both cells share length and output weights, which are eliminated; Levenberg-Marquardt from the
    eight highest maxima on a grid of 41 shifts in each cell, with every one of 20 lengths: of units that are short and
    in the middle of their steps, the deepest valley is narrow, and the highest places all lie in another one.
    """
    k, order, n = len(found.rows), found.order, len(found.outputs) // 2
    weights = np.prod(1.0 - found.outputs**2, axis=1) ** (order / k)
    term, hot = taylor_term("tanh", order), np.repeat(np.eye(2), n, axis=0)
    lengths, shifts, misfits = [], [], []
    for j, row in enumerate(found.rows.T):
        C = (found.coefficients[:, j] * weights)[:, None]
        C = C / max(np.linalg.norm(C), np.finfo(float).tiny)
        problem = _Curves(found.outputs @ row, C, hot, weights, term)
        result = batched_levenberg_marquardt(problem, problem.starts(), Ending(max_iter=40, damping=1e-2, ftol=1e-8))
        best = result.x[np.argmin(result.cost)]
        lengths.append(np.exp(min(best[0], _LARGEST)))
        shifts.append(np.clip(best[1:], -_SATURATED, _SATURATED))
        misfits.append(np.sqrt(result.cost.min()))
    return found.rows * np.array(lengths), np.array(shifts).T, np.array(misfits)


class _Curves:
    """``||C - a v||^2`` with the best v, for many (log r, c_0, c_1) at once."""

    def __init__(self, x, C, hot, weights, term):
        self.x, self.C, self.hot, self.weights, self.term = x, C, hot, weights, term

    def take(self, index):
        return self

    def move(self, z, steps):
        return z + steps

    def starts(self):
        """(log r, c_0, c_1), (n, 3)."""
        n, found = len(self.x) // 2, []
        for r in _LENGTHS:
            a = self.term(r * self.x + _SHIFTS[:, None])[0] * self.weights
            inside = [a[:, :n] @ self.C[:n], a[:, n:] @ self.C[n:]]
            sizes = [np.sum(a[:, :n] ** 2, axis=1), np.sum(a[:, n:] ** 2, axis=1)]
            gains = np.sum((inside[0][:, None] + inside[1][None]) ** 2, axis=-1) / (sizes[0][:, None] + sizes[1])
            highest = np.argwhere(maximum_filter(gains, 3, mode="nearest") == gains)
            highest = highest[np.argsort(-gains[tuple(highest.T)])[:_OF_A_LENGTH]]
            found += [(np.log(r), _SHIFTS[i], _SHIFTS[j]) for i, j in highest]
        return np.array(found)

    def residual(self, z):
        """What is left (B, n, m_L), v (B, m_L), changes of the directions a over their lengths (B, 3, n)."""
        moved = np.exp(np.minimum(z[:, :1], _LARGEST)) * self.x
        a, change = self.term(moved + z[:, 1:] @ self.hot.T)
        a, change = a * self.weights, change * self.weights
        lengths = np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-150)
        a, change = a / lengths, change / lengths
        v = a @ self.C
        changes = np.concatenate([(change * moved)[:, None], change[:, None] * self.hot.T[None]], axis=1)
        changes = changes - (changes @ a[:, :, None]) * a[:, None]
        return self.C[None] - a[:, :, None] * v[:, None], v, changes

    def cost(self, z):
        cost = np.sum(self.residual(z)[0] ** 2, axis=(1, 2))
        return np.where(np.isfinite(cost), cost, np.inf)

    def linearise(self, z):
        left, v, changes = self.residual(z)
        matrix = (changes @ np.swapaxes(changes, 1, 2)) * np.sum(v**2, axis=1)[:, None, None]
        return BatchedNormalEquations(matrix, -np.einsum("bjn,bnm,bm->bj", changes, left, v), longest=_LONGEST)
