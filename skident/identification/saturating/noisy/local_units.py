"""Single saturating units fitted to outputs around far points, where all other units are constant."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from skident.budget.constants import EPS32, FEW_ROUNDS
from skident.linalg import lapack
from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

from ...constants import WEAK_RIDGE

__all__ = ["LocalUnits", "UnitFits", "fit_local_units"]

_OUTPUTS = 10  # per input, of each round (budget)
_STEPS = 12  # of a fit
_STEEPNESS = 4.0  # pre-activations over an interval to which a step was narrowed down
_PRE_ACTIVATIONS = 1.2  # standard deviation of pre-activations: both the slope and the limits of a unit have an effect
_MAX_CHANGE = 6.0  # factor by which the spread of inputs changes between rounds
_MAX_SHIFT = 3.0  # spreads by which the center moves
_STEEPNESSES = (0.3, 3.0)  # of the first weights times the spread: linear regression has no scale for steep units
_EXPLAINED = 1.6  # residual of a single unit over the errors: 1.0 within 0.1, more where two units overlap
_SIGNIFICANT = 4.0  # standard errors of an outgoing weight
_FLOOR = 1e-12  # of the diagonals of normal equations, relative to the largest entry: rounding
_LEAST_NORM = 1e-100  # instead of zero, for a unit that is constant on its samples: square and inverse are finite


@dataclass(frozen=True)
class LocalUnits:
    """Units ``y = c + o g(w . (u - p) + b)``, each around one point, with o > 0 after `positive`.

    Attributes
    ----------
    points : ndarray of shape (B, D)
        p.
    weights : ndarray of shape (B, D)
        w.
    offsets : ndarray of shape (B,)
        b, small.
    heights : ndarray of shape (B,)
        o.
    information : ndarray of shape (B, D + 1, D + 1)
        Inverse covariance of (w, b), whatever o and c are.
    inputs, outputs : ndarrays of shape (B, n, D) and (B, n)
        What the units were fitted to.
    """

    points: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    heights: np.ndarray
    information: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray

    def __len__(self):
        return len(self.offsets)

    @property
    def rounding(self):
        """Errors (B,) of the outputs that come from sums of inputs in float32."""
        return _sum_rounding(self.points, self.weights, self.heights)

    def take(self, index):
        """Some of the units."""
        return LocalUnits(*(getattr(self, field.name)[index] for field in fields(self)))

    def joined(self, other):
        """These units and others."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return LocalUnits(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class UnitFits:
    """``sum_n (c + o g(w . v_n + b) - y_n)^2`` of units (w, b, o, c), a problem of `batched_levenberg_marquardt`.

    Attributes
    ----------
    activation : Activation
        g.
    inputs : ndarray of shape (B, n, D + 1)
        v with a column of ones.
    outputs : ndarray of shape (B, n)
    """

    activation: object
    inputs: np.ndarray
    outputs: np.ndarray

    def take(self, index):
        """Some of the problems."""
        return UnitFits(self.activation, self.inputs[index], self.outputs[index])

    def move(self, x, steps):
        """Parameters after a step."""
        return x + steps

    def cost(self, x):
        """Sums of squared residuals (B,)."""
        return np.sum(self._residual(x, self.activation(self._sums(x))) ** 2, axis=1)

    def linearize(self, x):
        """Gauss-Newton models."""
        J, residual = self.jacobian(x)
        Jt = J.transpose(0, 2, 1)
        return BatchedNormalEquations(Jt @ J, (Jt @ residual[..., None])[..., 0], _FLOOR)

    def jacobian(self, x):
        """Derivatives (B, n, D + 3) and residuals (B, n)."""
        g, slope = self.activation.jet(self._sums(x), 1)
        inner = (x[:, -2, None] * slope)[..., None] * self.inputs
        return np.concatenate([inner, g[..., None], np.ones((*g.shape, 1))], axis=2), self._residual(x, g)

    def _sums(self, x):
        return (self.inputs @ x[:, :-2, None])[..., 0]

    def _residual(self, x, g):
        return x[:, -1:] + x[:, -2, None] * g - self.outputs


def fit_local_units(query, steps, activation, std_of, rng):
    """The `LocalUnits` that explain outputs ``query(U)`` around `Steps`; ``std_of(Y)`` (n,) are their errors."""
    P, (B, D) = steps.points, steps.points.shape
    spread, limits = steps.widths / _STEEPNESS, activation.limits
    weights = steps.directions / spread[:, None]
    x = np.column_stack([weights, np.zeros(B), steps.heights / (limits[1] - limits[0]), np.zeros(B)])
    n = _OUTPUTS * (D + 2)
    for k in range(FEW_ROUNDS):
        U = P[:, None] + spread[:, None, None] * rng.standard_normal((B, n, D))
        Y = query(U.reshape(-1, D)).reshape(B, n)
        fits = UnitFits(activation, np.concatenate([U - P[:, None], np.ones((B, n, 1))], axis=2), Y)
        if k == 0:
            x = _with_direction(x, fits, spread)
        result = batched_levenberg_marquardt(fits, x, Ending(max_iter=_STEPS, damping=1e-2))
        x, norms = result.x, np.maximum(np.linalg.norm(result.x[:, :D], axis=1), _LEAST_NORM)
        if k < FEW_ROUNDS - 1:
            shift = np.clip(-x[:, D] / norms, -_MAX_SHIFT * spread, _MAX_SHIFT * spread)
            P = P + (shift / norms)[:, None] * x[:, :D]
            x[:, D] += shift * norms
            spread = np.clip(_PRE_ACTIVATIONS / norms, spread / _MAX_CHANGE, spread * _MAX_CHANGE)
    std = np.sqrt(np.mean(std_of(Y) ** 2, axis=1))
    good = np.sqrt(result.cost / n) < _EXPLAINED * std
    good &= np.abs(x[:, -2]) * (limits[1] - limits[0]) / 2.0 > _SIGNIFICANT * std / np.sqrt(n)
    sign, at_far = np.sign(x[:, -2]), np.hypot(std, _sum_rounding(P, x[:, :D], np.abs(x[:, -2])))
    units = LocalUnits(
        P, sign[:, None] * x[:, :D], sign * x[:, D], np.abs(x[:, -2]), _information(fits, x, at_far), U, Y
    )
    return units.take(np.flatnonzero(good & np.isfinite(units.information).all(axis=(1, 2))))


def _sum_rounding(points, weights, heights):
    """Errors (B,) of units at points from the rounding of their sums of inputs to float32."""
    return heights * EPS32 * np.linalg.norm(points, axis=1) * np.linalg.norm(weights, axis=1)


def _with_direction(x, fits, spread):
    """Start values: weights along the gradients of linear regressions on inputs of standard deviation `spread`."""
    x, V = x.copy(), fits.inputs[..., :-1]
    x[:, -1] = fits.outputs.mean(axis=1)
    centered = fits.outputs - x[:, -1:]
    gradient = np.einsum("bnd,bn->bd", V, centered) / (V.shape[1] * spread[:, None] ** 2)
    gradient *= _PRE_ACTIVATIONS / x[:, -2, None]
    size = np.maximum(np.linalg.norm(gradient, axis=1), _LEAST_NORM)
    x[:, :-3] = gradient * (np.clip(size, _STEEPNESSES[0] / spread, _STEEPNESSES[1] / spread) / size)[:, None]
    return x


def _information(fits, x, std):
    """Inverse covariances (B, D + 1, D + 1) of weights and offsets, for errors of standard deviations std (B,)."""
    J, _ = fits.jacobian(x)
    inner, outer = J[..., :-2], J[..., -2:]
    A, C, E = (a.transpose(0, 2, 1) @ b for a, b in ((inner, inner), (inner, outer), (outer, outer)))
    E = E + WEAK_RIDGE * J.shape[1] * np.eye(2)
    return (A - C @ lapack.solve(E, C.transpose(0, 2, 1))) / std[:, None, None] ** 2
