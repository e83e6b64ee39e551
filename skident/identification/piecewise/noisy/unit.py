"""Units of the second layer from bends of the outputs, linear in the unknowns before signs of the first are known."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack

from ...constants import INPUT_ROUNDING, LEAST_SHARE, RCOND
from ..kernel.lines import Table
from ..kernel.windows import locate_by_lines
from .robust import robust_fit

_WIDTHS = (1e-3, 0.2)  # half widths of windows, in standard deviations of the inputs: the widest that has one bend
_FREE = 0.4  # half width of a window over the distance of the next hyperplane
_TRIES = 9  # windows, each half as wide
_GRADIENT_ERROR = 1e-6  # of a gradient beside the measured one: rounding of inputs
_TOLERANCE = 3e-3  # relative difference of gradients that agree, if they have no errors
_ERRORS = 5.0  # `_TOLERANCE` in errors of the gradient
_SPARE = 3  # equations beyond the unknown coefficients by which a bend proves to be one of a unit
_TRIED = 20  # bends across unknown hyperplanes that are tried at a time: those across the fewest (budget)
_ALIKE = 0.02  # relative difference of the coefficients of two parts of one unit
_ROUNDS = 6  # reweightings of a fit


@dataclass(frozen=True)
class Bends(Table):
    """Critical points with the jump of the outputs' slope."""

    points: np.ndarray  # (n, D)
    gradients: np.ndarray  # (n, D), of the unit up to sign, as long as the jump, in units of the probe
    outputs: np.ndarray  # (n, m_L), direction of the jump, norm 1
    errors: np.ndarray  # (n,), of the gradients over their lengths
    position_errors: np.ndarray  # (n,)


def bends_at(probe, planes, critical):
    """The `Bends` at `CriticalPoints`, each located in the widest window that has no other one."""
    X, N = critical.points, critical.normals
    rate = np.maximum(np.abs(N @ planes[:, :-1].T), TINY)
    width = np.clip(_FREE * np.min(np.abs(X @ planes[:, :-1].T + planes[:, -1]) / rate, axis=1), *_WIDTHS)
    there = locate_by_lines(probe, X, N, width)
    for _ in range(_TRIES - 1):
        todo = np.flatnonzero(~there.found)
        width[todo] *= 0.5
        for old, new in zip(there, locate_by_lines(probe, X[todo], N[todo], width[todo]), strict=True):
            old[todo] = new
    i = np.flatnonzero(there.found)
    offset, error, jump, _ = there.take(i)
    size = np.linalg.norm(jump, axis=1, keepdims=True)
    errors = _GRADIENT_ERROR + critical.errors[i] + error / width[i]  # a jump is known as a position in the window is
    error = error + INPUT_ROUNDING * (1.0 + np.linalg.norm(X[i], axis=1))
    return Bends(X[i] + offset[:, None] * N[i], size * N[i], jump / size, errors, error)


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
    signs : dict
        Index of a bend on the unit's boundary to the sign of its gradient.
    """

    def __init__(self, planes, bends, first):
        self.normals, self.offsets = planes[:, :-1].T, planes[:, -1]
        self.point, self.gradient, self.beta = bends.points[first], bends.gradients[first], 0.0
        self.output, self.signs = bends.outputs[first], {int(first): 1.0}
        self.side = np.where(self.point @ self.normals + self.offsets > 0, 1.0, -1.0)
        self.coef, self.known = np.zeros(len(planes)), np.zeros(len(planes), dtype=bool)
        self.see(bends)

    def see(self, bends):
        """Know of more bends, which follow those that it knows of."""
        self.bends, self.all_features = bends, self.features(bends.points)

    @property
    def points(self):
        """Bends (n, D) on the unit's boundary."""
        return self.bends.points[list(self.signs)]

    def features(self, X):
        """``relu(-s_i z_i)`` (n, K) at points (n, D)."""
        return np.maximum(-self.side * (X @ self.normals + self.offsets), 0.0)

    def values(self, X):
        """z (n,) at points (n, D)."""
        return (X - self.point) @ self.gradient + self.beta + self.features(X) @ self.coef

    def gradients(self, X):
        """Gradients (n, D) of z."""
        return self.gradient - ((self.features(X) > 0) * self.coef * self.side) @ self.normals.T

    def contains(self, X, tol):
        """Which points (n, D) are on the boundary of the unit, as far as it is known, up to a distance `tol`."""
        valid = ~np.any((self.features(X) > 0)[:, ~self.known], axis=1)
        return valid & (np.abs(self.values(X)) < tol * np.linalg.norm(self.gradients(X), axis=1))

    def grow(self, index):
        """Take up bends of `index` that agree with the unit, those across the fewest unknown hyperplanes first."""
        index = np.array([i for i in index if i not in self.signs], dtype=int)
        alike = np.linalg.norm(self.bends.outputs[index] - self.output, axis=1)
        index = index[alike < _TOLERANCE + _ERRORS * (self.bends.errors[index] + self.bends.errors.min())]
        while len(index):
            before = len(self.signs)
            n_unknown = np.sum(self.all_features[index][:, ~self.known] > 0, axis=1)
            self._take_up_known(index[n_unknown == 0])
            index, n_unknown = index[n_unknown > 0], n_unknown[n_unknown > 0]
            order = np.argsort(n_unknown, kind="stable")[:_TRIED]
            taken = [k for k in order if self._take_up(index[k])]
            if len(self.signs) == before:
                return
            self.fit()
            index = np.delete(index, taken)

    def _tolerance(self, index):
        size = np.linalg.norm(self.bends.gradients[index], axis=1)
        return (_TOLERANCE + _ERRORS * self.bends.errors[index]) * size

    def _take_up_known(self, index):
        """Take up bends (n,) across known hyperplanes only that agree with the unit."""
        X, gradients = self.bends.points[index], self.bends.gradients[index]
        here, far = self.gradients(X), np.maximum(np.linalg.norm(X - self.point, axis=1), TINY)
        signs = np.where(np.sum(here * gradients, axis=1) > 0, 1.0, -1.0)
        apart = np.linalg.norm(here - signs[:, None] * gradients, axis=1)
        agree = np.hypot(apart, self.values(X) / far) < self._tolerance(index)
        self.signs.update(zip(index[agree].tolist(), signs[agree], strict=True))

    def _take_up(self, i):
        """Whether bend i agrees with the unit; then unknown coefficients are set."""
        x, gradient, tol = self.bends.points[i], self.bends.gradients[i], self._tolerance([i])[0]
        crossed = np.flatnonzero(~self.known & (self.all_features[i] > 0))
        if len(crossed) > len(x) - _SPARE:
            return False
        far = max(np.linalg.norm(x - self.point), TINY)
        A = np.vstack([-self.normals[:, crossed] * self.side[crossed], self.all_features[i, crossed] / far])
        here, value = self.gradients(x[None])[0], self.values(x[None])[0] / far
        Y = np.array([np.append(sign * gradient - here, -value) for sign in (1.0, -1.0)]).T
        coef = lapack.lstsq(A, Y, rcond=RCOND)[0]
        rest = np.linalg.norm(Y - A @ coef, axis=0)
        k = int(np.argmin(rest))
        if rest[k] < tol:
            self.signs[int(i)], self.coef[crossed] = 1.0 - 2.0 * k, coef[:, k]
            self.known[crossed] = True
        return rest[k] < tol

    def unite(self, part):
        """Take up the bends of a part whose coefficients at common hyperplanes are equal; whether that is so."""
        common, new = self.known & part.known, part.known & ~self.known
        a, b = self.coef[common], part.coef[common]
        sign = 1.0 if a @ b > 0 else -1.0
        if common.sum() < _SPARE or np.linalg.norm(a - sign * b) > _ALIKE * max(np.linalg.norm(a), np.linalg.norm(b)):
            return False
        before, coef, known = dict(self.signs), self.coef.copy(), self.known.copy()
        self.coef[new], self.known = sign * part.coef[new], self.known | new
        self.grow(list(part.signs))
        if len(self.signs) - len(before) >= LEAST_SHARE * len(part.signs):
            return True
        self.signs, self.coef, self.known = before, coef, known
        self.fit()
        return False

    def fit(self):
        """Fit gradient, beta and the known coefficients to the bends."""
        index, signs, D = list(self.signs), np.array(list(self.signs.values())), len(self.point)
        known, features = np.flatnonzero(self.known), self.all_features[index]
        X, size = self.bends.points[index] - self.point, np.linalg.norm(self.bends.gradients[index], axis=1)
        values = np.column_stack([X, np.ones(len(X)), features[:, known]])
        slopes = np.zeros((len(X), D, values.shape[1]))
        slopes[:, :, :D] = np.eye(D)
        slopes[:, :, D + 1 :] = -self.side[known] * self.normals[:, known] * (features[:, None, known] > 0)
        A = np.vstack([values, slopes.reshape(-1, values.shape[1])])
        y = np.concatenate([np.zeros(len(X)), (signs[:, None] * self.bends.gradients[index]).ravel()])
        errors = np.append(self.bends.position_errors[index] * size, np.repeat(self.bends.errors[index] * size, D))
        fit = robust_fit(A, y, errors, n_rounds=_ROUNDS)
        self.gradient, self.beta, self.coef[known] = np.split(fit.solution, [D, D + 1])
        self.beta = float(self.beta[0])
