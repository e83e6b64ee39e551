"""One unit of the next layer: an affine set of coefficients with a covariance, from equations with errors."""

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack, svd

from ..measure.outputs import SIGNIFICANCE

_EXACT = 1e-16  # least relative error of an equation (rounding)
_NORM_ERROR = 1e-13  # relative error of a norm that is a convention (rounding)
_RANK = 1e-14  # singular value over the largest that is rounding of scaled equations
_REWEIGHTINGS = 3  # of a fit (budget)
_MOST_ROWS = 20  # equations per coefficient, above which as many as coefficients take their place (memory)
_LARGEST_CHANGE = 0.1  # of the coefficients by a fit, relative, beyond their errors: more contradicts the unit


class Unit:
    """A unit ``z(x) = phi(x) . (coef + V s)`` with any s: determined where ``phi(x) V = 0``.

    Attributes: `coef` (T,), `V` (T, k), `half` (T, r), a root of the covariance of coef; `starts`, points of its
    boundary; `anchor` (T,), what fixes its norm, None for its own coefficients; `rows` (n, T) and `errors` (n,),
    equations ``rows coef = 0``.
    """

    def __init__(self, coef, V, start):
        self.coef, self.V, self.starts, self.anchor = coef, V, [start], None
        self.rows, self.errors, self.half = np.zeros((0, len(coef))), np.zeros(0), np.zeros((len(coef), 0))

    @property
    def nullity(self):
        """In how many directions the unit is undetermined."""
        return self.V.shape[1]

    def copy(self):
        """The same unit, to be changed on its own."""
        other = Unit(self.coef, self.V, self.starts[0])
        other.take(self)
        return other

    def take(self, other):
        """Become the same as another unit."""
        self.coef, self.V, self.starts, self.anchor = (
            other.coef.copy(),
            other.V.copy(),
            list(other.starts),
            other.anchor,
        )
        self.rows, self.errors, self.half = other.rows, other.errors, other.half

    def joined(self, other, tol):
        """The unit that this and another may be, open where both are; None if they differ, or if any two agree."""
        A, B = (np.column_stack([unit.coef / np.linalg.norm(unit.coef), unit.V]) for unit in (self, other))
        k = A.shape[1]
        if k + B.shape[1] > len(A):
            return None
        _, s, Vt = svd(np.hstack([A, -B]), full_matrices=False)
        X = Vt[s < tol]  # rows: combinations of both that are equal
        if not np.any(np.abs(X[:, 0]) > tol):  # open parts that both have
            return None
        rest = svd(X[:, :1].T)[2][1:] @ X
        x, found = X[:, 0] @ X / (X[:, 0] @ X[:, 0]), self.copy()
        found.coef = np.linalg.norm(self.coef) * A @ x[:k]
        found.V = lapack.qr(A @ rest[:, :k].T)[0]
        found.starts = self.starts + other.starts
        found.learn(other.rows, other.errors * abs(x[k]) * np.linalg.norm(self.coef) / np.linalg.norm(other.coef))
        found.settle()
        return found

    def scaled(self, factor):
        """Multiply the unit by a positive factor."""
        self.coef, self.errors, self.half = self.coef * factor, self.errors * factor, self.half * factor

    def impose(self, rows, rank_tol):
        """Fulfill equations ``rows coef = 0`` (n, T) within the affine set; the relative residual that is left."""
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)
        M = rows @ self.V
        if M.shape[1]:
            U, s, Vt = svd(M)
            k = int((s > rank_tol).sum())
            self.coef = self.coef - self.V @ (Vt[:k].T @ ((U[:, :k].T @ (rows @ self.coef)) / s[:k]))
            self.V = self.V @ Vt[k:].T
        return np.abs(rows @ self.coef).max() / max(np.linalg.norm(self.coef), TINY)

    def close(self, rows, errors, tol):
        """Learn equations ``rows coef = 0`` that determine open parts to a relative error; False if none, or they fail.

        More equations than open parts must hold, within their errors and those of the coefficients.
        """
        known = self.error(rows - rows @ self.V @ self.V.T)
        A = rows / np.maximum(np.hypot(errors, known), TINY)[:, None]
        U, s, Vt = svd(A @ self.V)
        k = int((s * tol * np.linalg.norm(self.coef) > 1.0).sum())
        coef = self.coef - self.V @ (Vt[:k].T @ ((U[:, :k].T @ (A @ self.coef)) / s[:k]))
        if k == 0 or len(rows) <= k + 1 or np.abs(A @ coef).max() > SIGNIFICANCE:
            return False
        self.coef, self.V = coef, self.V @ Vt[k:].T
        self.learn(rows, errors)
        self.settle()
        return True

    def determine(self, change, errors):
        """Add a change (T,) of coef along V, known with errors (k,) of its parts, and leave nothing open."""
        self.coef, V, self.V = self.coef + change, self.V, self.V[:, :0]
        self.learn(V.T - np.outer(V.T @ self.coef, self.coef) / (self.coef @ self.coef), errors)
        self.settle()

    def learn(self, rows, errors):
        """Keep equations ``rows coef = 0`` with standard errors."""
        self.rows, self.errors = np.vstack([self.rows, rows]), np.append(self.errors, errors)

    def settle(self):
        """Fit coef to all equations by the least change, and its covariance; its norm is taken as known.

        Directions that no equation determines keep an error of the size of coef.
        """
        size, T = np.linalg.norm(self.coef), len(self.coef)
        least = np.maximum(_EXACT * np.linalg.norm(self.rows, axis=1) * size, TINY)
        A = self.rows / np.maximum(self.errors, least)[:, None]
        anchor = self.coef if self.anchor is None else self.anchor
        prior = np.vstack([np.eye(T) / size, anchor / (_NORM_ERROR * (anchor @ self.coef))])
        slack = np.hypot(1.0, np.linalg.norm(A @ self.half, axis=1))  # before the fit, its own errors explain residuals
        largest = _LARGEST_CHANGE * size + SIGNIFICANCE * np.linalg.norm(self.half)
        for _ in range(_REWEIGHTINGS):
            residual = np.abs(A @ self.coef) / slack
            kept = residual <= SIGNIFICANCE * max(np.median(residual), 1.0)
            B = np.vstack([A[kept], prior])
            norms = np.linalg.norm(B, axis=0)
            U, s, Vt = svd(B / norms, full_matrices=False)
            some = s > _RANK * s[0]
            step = Vt[some].T @ ((U[: kept.sum(), some].T @ (A[kept] @ self.coef)) / s[some]) / norms
            if np.linalg.norm(step) > largest:
                return
            self.coef, slack = self.coef - step, 1.0
        self.half = (Vt.T / np.maximum(s, _RANK * s[0])) / norms[:, None]
        if len(A) > _MOST_ROWS * T:
            self.rows, self.errors = lapack.qr(A[kept])[1], np.ones(min(T, kept.sum()))

    def vague(self, tol):
        """Directions (T, k) in which the coefficients have larger relative errors."""
        U, s, _ = svd(self.half, full_matrices=False)
        return U[:, s > tol * np.linalg.norm(self.coef)]

    def error(self, phi):
        """Standard errors (n,) of z at features phi (n, T)."""
        return np.linalg.norm(phi @ self.half, axis=1)

    def is_determined(self, phi, tol):
        """At which features (n, T) the unit is determined: a mask (n,)."""
        return np.abs(phi @ self.V).max(axis=1, initial=0.0) < tol * np.linalg.norm(phi, axis=1)
