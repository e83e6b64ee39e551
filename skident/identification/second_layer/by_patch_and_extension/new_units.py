"""The second layer's row at one more first-layer unit, from answers across its hyperplane, all else being known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from skident.optim import DenseNormalEquations, levenberg_marquardt
from skident.oracle import NotIdentified

__all__ = ["TAILS", "NewUnit", "fit_new_unit", "weights_from_tail", "sensitivity"]

# Pre-activations at which a unit's tail is followed, towards its middle: the last four leave 3e-3 to 4e-2 of it.
TAILS = {"tanh": np.array([10.0, 3.2, 2.5, 2.15, 2.0]), "erf": np.array([5.5, 2.08, 1.75, 1.57, 1.48])}
_LEAST = 1e-12  # part of the largest singular value that the linear fit uses
_SHIFTS, _TRIED = np.linspace(-2.0, 2.0, 41), 3  # first guesses, and how many of them are fitted
_NEAR = 1e-7  # to which each is fitted on a line
_EXPLAINED = 1e-4  # misfit beyond which the next guess is tried
_FURTHEST = 6.0  # shift


@dataclass(frozen=True)
class NewUnit:
    """One more unit.

    Attributes
    ----------
    row : ndarray of shape (m_2,)
    shift : float
        To be added to its pre-activation.
    stretch : float
        Factor of its length, about 1: lengths from tails are good to 1e-7.
    misfit : float
        Relative to what the unit changes.
    """

    row: np.ndarray
    shift: float
    stretch: float
    misfit: float


def sensitivity(known, Z):
    """How the answers change with what second-layer units read.

    Parameters
    ----------
    known : KnownUnits
    Z : ndarray of shape (n, m_1)
        Pre-activations as known.

    Returns
    -------
    ndarray of shape (n, m_L, m_2)
    """
    slopes = known.activation.jet(known.read(Z), 1)[1]
    return slopes[:, None, :] * known.readout.T


def weights_from_tail(known, Z, Y, levels, sign):
    """A unit's row by linear least squares, from where it is nearly saturated.

    Parameters
    ----------
    known : KnownUnits
    Z : ndarray of shape (n, m_1)
        Pre-activations as known, the unit being saturated.
    Y : ndarray of shape (n, n_levels, m_L)
        Answers along lines on which nothing but this unit moves.
    levels : ndarray of shape (n_levels,)
        Its pre-activations there; at the first one it is saturated.
    sign : float
        Its output there.

    Returns
    -------
    ndarray of shape (m_2,)
        Where a tanh unit has a shift beside these pre-activations, ``exp(-2 sign shift)`` times that.

    Raises
    ------
    NotIdentified
        If the unit's outputs do not differ between these pre-activations.

    Notes
    -----
    Where nothing but ``epsilon = h_b - s_b`` changes, f is a power series in epsilon, whose linear term
    is ``sum_j v_j g'(y_j) W_bj``: differences of answers, so that errors of what is known cancel.
    """
    moved = known.activation(levels[1:]) - known.activation(levels[0])
    if not np.all(np.diff(np.sort(np.append(moved, 0.0))) > 0.0):  # the powers would be singular
        raise NotIdentified("second layer", "rank", "outputs of a unit do not differ across a wall.")
    powers = (moved[:, None] / moved[-1]) ** np.arange(1, len(moved) + 1)
    linear = np.linalg.inv(powers)[0] / moved[-1]
    slopes = np.einsum("l,nlm->nm", linear, Y[:, 1:] - Y[:, :1])
    J = sensitivity(known, Z).reshape(slopes.size, -1)
    lengths = np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny)
    return np.linalg.lstsq(J / lengths, slopes.ravel(), rcond=_LEAST)[0] / lengths


def fit_new_unit(known, unit, Z, Y, row, sign, shift=None):
    """The row, the shift and the length of a unit.

    Parameters
    ----------
    known : KnownUnits
        All other units that are not saturated as in its cell.
    unit : int
    Z : ndarray of shape (n, m_1)
        Pre-activations as known.
    Y : ndarray of shape (n, m_L)
        Answers.
    row : ndarray of shape (m_2,)
        See `weights_from_tail`.
    sign : float
        Saturated output of the unit that `known.biases` include.
    shift : float, default=None
        Where it is known, as the length is then.

    Returns
    -------
    NewUnit

    Notes
    -----
    ``f = sum_j v_j g(y_j + W_bj (h_b - s_b)) + v_0`` with y known and ``h_b = g(r_b t_b + delta_b)``: Gauss-Newton on
    W_b, delta_b and r_b, from those shifts that explain most, each with the row that gives the same tail.
    """
    problem = _AcrossWall(known, unit, Z, Y, sign, shift)
    starts = [np.append(row, (shift, 1.0))] if shift is not None else problem.starts(row)
    best = None
    for start in starts:
        result = levenberg_marquardt(problem.cost, problem.linearise, start, max_iter=40, damping=1e-8, ftol=1e-3)
        if best is None or result.cost < best.cost:
            best = result
        if best.cost < _EXPLAINED**2:
            break
    return NewUnit(best.x[:-2], float(best.x[-2]), float(best.x[-1]), float(np.sqrt(best.cost)))


class _AcrossWall:
    """``|f - Y|^2`` over what the unit changes, as a function of its row, shift and length."""

    def __init__(self, known, unit, Z, Y, sign, shift):
        self.known, self.t, self.sign, self.given = known, Z[:, unit], sign, shift
        self.read, self.Y = known.read(Z), Y - known.offset
        changes = self.Y - known.activation(self.read) @ known.readout
        self.size = max(float(np.linalg.norm(changes)), np.finfo(float).tiny)

    def starts(self, row):
        """Rows with shifts that explain most of all that give the tail the same, the best first."""

        def on_line(d):
            return np.append(row * np.exp(2.0 * self.sign * d), (d, 1.0))

        costs = np.array([self.cost(on_line(d)) for d in _SHIFTS])
        width, starts = _SHIFTS[1] - _SHIFTS[0], []
        for d in _SHIFTS[np.argsort(costs)[:_TRIED]]:
            found = minimize_scalar(
                lambda d: self.cost(on_line(d)),
                bounds=(d - width, d + width),
                method="bounded",
                options={"xatol": _NEAR},
            )
            starts.append((found.fun, found.x))
        return [on_line(d) for _, d in sorted(starts)]

    def cost(self, x):
        """Sum of squares."""
        if not abs(x[-2]) < _FURTHEST:
            return np.inf
        y = self.read + np.outer(self.known.activation(self.t * x[-1] + x[-2]) - self.sign, x[:-2])
        return float(np.sum((self.known.activation(y) @ self.known.readout - self.Y) ** 2)) / self.size**2

    def linearise(self, x):
        """Gauss-Newton model."""
        h, slope = self.known.activation.jet(self.t * x[-1] + x[-2], 1)
        g, slopes = self.known.activation.jet(self.read + np.outer(h - self.sign, x[:-2]), 1)
        left = (g @ self.known.readout - self.Y) / self.size
        by_read = slopes[:, None, :] * self.known.readout.T / self.size
        by_shift = ((by_read @ x[:-2]) * slope[:, None] * (self.given is None))[..., None]
        by_length = by_shift * self.t[:, None, None]
        J = np.concatenate([by_read * (h - self.sign)[:, None, None], by_shift, by_length], axis=2)
        J = J.reshape(-1, len(x))
        A = J.T @ J
        A.flat[:: len(A) + 1] += np.diag(A) == 0.0
        return DenseNormalEquations(A, J.T @ left.ravel())
