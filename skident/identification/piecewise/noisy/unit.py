"""One unit of the second layer around a critical point, linear in the unknowns, before signs of the first are known."""

from __future__ import annotations

import numpy as np

from ...constants import INPUT_ROUNDING
from .robust import robust_fit

__all__ = ["SignFreeUnit"]

_NORM_ERROR = 1e-9  # of the gradient's length at the first point, which sets the unit's scale
_LEAST_GRADIENT = 0.1  # gradient, over that at the first point, from which errors of positions are errors of the unit


class SignFreeUnit:
    """``z(x) = g . (x - p) + beta + sum_i coef_i relu(-s_i z_i(x))`` with hyperplanes ``z_i`` and their signs s at p.

    A hyperplane that the unit's boundary crosses changes the gradient of z by a multiple of its normal, whichever side
    is active: one unknown per hyperplane, no sign. z has the length of the outputs' jump, in units of the probe.

    Attributes
    ----------
    normals : ndarray of shape (D, K)
    offsets : ndarray of shape (K,)
    point : ndarray of shape (D,)
    output : ndarray of shape (m_L,)
        Direction of the outputs' jump, norm 1, from the side with z < 0 to the other.
    coef : ndarray of shape (K,)
    known : ndarray of bool, shape (K,)
        Hyperplanes that were crossed.
    """

    def __init__(self, planes, point, gradient, output, direction_error, position_error):
        self.normals, self.offsets, self.point, self.output = planes[:, :-1].T, planes[:, -1], point, output
        self.side = np.where(point @ self.normals + self.offsets > 0, 1.0, -1.0)
        self.gradient, self.first_gradient, self.direction_error = gradient, gradient, direction_error
        self.norm, self.beta, self.share = float(np.linalg.norm(gradient)), 0.0, 0.0
        self.coef, self.known = np.zeros(len(planes)), np.zeros(len(planes), dtype=bool)
        self.points, self.errors = point[None], np.array([position_error])
        self.deviation = np.zeros(1)

    def with_planes(self, planes):
        """The same unit with more hyperplanes, after those that it has."""
        n_new = len(planes) - len(self.offsets)
        self.normals, self.offsets = planes[:, :-1].T, planes[:, -1]
        self.side = np.where(self.point @ self.normals + self.offsets > 0, 1.0, -1.0)
        self.coef, self.known = np.append(self.coef, np.zeros(n_new)), np.append(self.known, np.zeros(n_new, bool))
        return self

    def without_planes(self, index):
        """The same unit without some hyperplanes."""
        self.normals, self.offsets = np.delete(self.normals, index, axis=1), np.delete(self.offsets, index)
        self.side, self.coef = np.delete(self.side, index), np.delete(self.coef, index)
        self.known = np.delete(self.known, index)
        return self

    def features(self, X):
        """``relu(-s_i z_i)`` (n, K) at points (n, D)."""
        return np.maximum(-self.side * (X @ self.normals + self.offsets), 0.0)

    def values(self, X):
        """z (n,) at points (n, D)."""
        return (X - self.point) @ self.gradient + self.beta + self.features(X) @ self.coef

    def gradients(self, X):
        """Gradients (n, D) of z."""
        crossed = -self.side * (X @ self.normals + self.offsets) > 0
        return self.gradient_beyond(crossed)

    def gradient_beyond(self, crossed):
        """Gradients (..., D) of z beyond the hyperplanes of a mask (..., K)."""
        return self.gradient - (crossed * self.coef * self.side) @ self.normals.T

    def is_valid(self, X):
        """Which points (n, D) are beyond known hyperplanes only."""
        return ~np.any((self.features(X) > 0)[:, ~self.known], axis=1)

    def contains(self, X, tol):
        """Which points (n, D) are on the boundary of the unit, as far as it is known, up to a distance `tol` (n,)."""
        return self.is_valid(X) & (np.abs(self.values(X)) < tol * np.linalg.norm(self.gradients(X), axis=1))

    def add_points(self, X, errors):
        """Add critical points (n, D) of the unit with standard errors (n,)."""
        self.points = np.vstack([self.points, X])
        self.errors = np.append(self.errors, errors + INPUT_ROUNDING)

    def fit(self, n_rounds=6):
        """Fit gradient, beta and the known coefficients to the critical points."""
        known, D = np.flatnonzero(self.known), len(self.point)
        length = np.linalg.norm(self.gradients(self.points), axis=1)
        errors = self.errors * np.maximum(length, _LEAST_GRADIENT * np.linalg.norm(self.gradient))
        A = np.column_stack([self.points - self.point, np.ones(len(errors)), self.features(self.points)[:, known]])
        prior = np.zeros((D + 1, A.shape[1]))
        prior[:D, :D] = np.eye(D) / (self.norm * self.direction_error)
        prior[D, :D] = self.first_gradient / (_NORM_ERROR * self.norm**2)
        target = np.append(self.first_gradient / (self.norm * self.direction_error), 1.0 / _NORM_ERROR)
        fit = robust_fit(A, np.zeros(len(errors)), errors, prior=(prior, target), n_rounds=n_rounds)
        self.gradient, self.beta, self.coef[known] = np.split(fit.solution, [D, D + 1])
        self.beta, self.deviation = float(self.beta[0]), fit.deviation
        return fit

    def discard(self, fit, n_deviations):
        """Forget critical points that a fit does not explain."""
        kept = fit.within(n_deviations)
        self.points, self.errors = self.points[kept], self.errors[kept]

    def state(self):
        """What `restore` brings back."""
        return self.coef.copy(), self.known.copy(), self.gradient, self.beta, self.points, self.errors

    def restore(self, state):
        """Go back to an earlier `state`."""
        self.coef, self.known, self.gradient, self.beta, self.points, self.errors = state
