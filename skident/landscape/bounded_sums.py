"""Sums over samples in extended precision with rigorous bounds of their rounding errors."""

import functools
import math

import numpy as np

from skident.linalg import svd

from .problem import LossTerms, exact_offsets

# IEEE formats only: the bounds below are those of operations that are rounded correctly.
_EXTENDED = np.longdouble if np.finfo(np.longdouble).nmant in (63, 112) else np.float64
# Multiplications in extended precision (budget).
_NEGLIGIBLE_WORK = 1e5  # milliseconds: extended precision at once
MAX_WORK = 3e7  # half a second: above, double precision only
BLOCK = 128  # samples summed first: fewer consecutive roundings than in one sum
# Upper bound of the sum of numbers that underflow, for data whose largest numbers are about 1.
_UNDERFLOW = 1e-280
_INFLATION = 1e-14  # 45 eps: covers the roundings of a bound's own computation
_RANGE = 1e250  # of rescaled ridges, so that no product over- or underflows


def precisions(problem):
    """Formats in which to try sums over a problem's samples: double first if extended precision takes long."""
    work = problem.n * problem.d**2
    return [np.float64] * bool(work > _NEGLIGIBLE_WORK) + [_EXTENDED] * bool(work <= MAX_WORK)


def collinearity(problem):
    """Smallest over largest singular value of the inputs, columns normalized: 0 for linearly dependent inputs.

    In double precision; with linear and constant terms of the centered inputs. 0 for fewer samples than inputs.
    """
    X = problem.linear_inputs if problem.fit_intercept and problem.fit_linear else problem.X
    largest = np.abs(X).max(axis=0)
    X = X / np.where(largest > 0, largest, 1.0)
    S = svd(X / np.maximum(np.linalg.norm(X, axis=0), 1e-300), compute_uv=False)
    return float(S[-1] / S[0]) if len(S) == problem.d and S[0] > 0 else 0.0


def gamma(operations, dtype):
    """Relative error of a sum of products after this many consecutive roundings, twice Higham's gamma.

    The factor covers the roundings of error bounds themselves, which are computed in double precision. Source: Higham
    (2002), "Accuracy and Stability of Numerical Algorithms", Lemma 3.1.
    """
    return float(operations * np.finfo(dtype).eps)


def inflated(x):
    """A nonnegative number increased by more than forty roundings."""
    return float(x) * (1.0 + _INFLATION) + _UNDERFLOW


def deflated(x):
    """A number decreased by more than forty roundings, at least 0."""
    return max(0.0, float(x) * (1.0 - _INFLATION) - _UNDERFLOW)


def norm_upper_bound(a):
    """Upper bound of the Euclidean norm of an array's entries, nearly tight."""
    entries = np.ravel(a).astype(float)
    return inflated(math.sqrt(math.fsum((entries * entries).tolist())))


def column_exponents(X, alike):
    """Powers of two (d,) about as large as the columns' root mean squares; if `alike`, the largest for all."""
    largest = np.abs(X).max(axis=0)
    sizes = largest * np.sqrt(np.mean((X / np.where(largest > 0, largest, 1.0)) ** 2, axis=0))
    sizes = np.full(len(sizes), sizes.max()) if alike else sizes
    return np.where(sizes > 0, np.frexp(sizes)[1], 0)


def normalized(problem, centered=True):
    """The problem scaled by powers of two to inputs and targets of about 1; None if a number would underflow.

    Inputs are multiplied by ``2^-exponents`` (d,), targets by ``2^-y_exponent``, losses by its square. Without ridge
    each input has its own scale, and with linear and constant terms large means are subtracted, as far as that is
    exact.
    """
    X, terms = _without_means(problem) if centered else problem.X, problem.terms
    exponents = column_exponents(X, alike=terms.alpha > 0)
    y_exponent = int(column_exponents(problem.y[:, None], alike=True)[0])
    Z, y = np.ldexp(X, -exponents), np.ldexp(problem.y, -y_exponent)
    exact = np.array_equal(np.ldexp(Z, exponents), X) and np.array_equal(np.ldexp(y, y_exponent), problem.y)
    if exact and terms.alpha > 0:
        e = int(exponents[0])
        alpha, weight = (float(np.ldexp(a, k)) for a, k in ((terms.alpha, -4 * e), (terms.linear_weight, -2 * e)))
        exact = 1.0 / _RANGE < alpha < _RANGE and 1.0 / _RANGE < weight < _RANGE
        terms = LossTerms(alpha, terms.fit_intercept, terms.fit_linear, weight) if exact else terms
    return (problem.changed(X=Z, y=y, terms=terms) if exact else None), exponents, y_exponent


def _without_means(problem):
    """Inputs minus large means, if that is exact; else unchanged."""
    if not (problem.fit_intercept and problem.fit_linear and problem.alpha == 0):
        return problem.X
    return problem.X - exact_offsets(problem.X)


class BoundedSums:
    """Inputs and targets of a normalized problem, and sums over samples with bounds of their errors.

    `y` is centered if there is an intercept, up to one rounding; `depth` is the number of consecutive roundings of a
    sum. `weights` are those of the samples, or one.
    """

    def __init__(self, problem, dtype=None):
        self.problem, (self.n, self.d) = problem, problem.X.shape
        self.dtype = np.dtype(precisions(problem)[-1] if dtype is None else dtype)
        self.X, self.y = problem.X.astype(self.dtype), problem.y.astype(self.dtype)
        if problem.fit_intercept:
            self.y = self.y - np.average(problem.y, weights=problem.weights)
        self.weights = problem.weighted(np.ones(self.n)).astype(self.dtype)
        self.depth = min(self.n, BLOCK) + self.n // BLOCK + 8

    @functools.cached_property
    def squares(self):
        """``|x_i|^2`` (n,), to rounding."""
        return np.sum(self.problem.X**2, axis=1)

    def _blocks(self):
        """Slices of samples that are summed first."""
        return (slice(i, i + BLOCK) for i in range(0, self.n, BLOCK))

    def dot(self, u, w):
        """``<u, w>`` and a bound of its error."""
        value = sum((u[b] @ w[b] for b in self._blocks()), self.dtype.type(0))
        size = float(np.abs(u).astype(float) @ np.abs(w).astype(float))
        return value, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def square(self, u):
        """Upper bound of ``||u||^2``."""
        value, error = self.dot(u, u)
        return inflated(float(value) + error)

    def weighted_square(self, u, inverse=False):
        """Upper bound of ``sum_i w_i u_i^2``, or of ``sum_i u_i^2 / w_i``."""
        value, error = self.dot(u, u / self.weights if inverse else u * self.weights)
        return inflated(float(value) + error)

    def second_moments(self, u):
        """``sum_i u_i x_i x_i^T`` (d, d) and a bound of its error in Frobenius norm."""
        S = np.zeros((self.d, self.d), dtype=self.dtype)
        for b in self._blocks():
            S += (self.X[b] * u[b, None]).T @ self.X[b]
        size = float(np.abs(u).astype(float) @ self.squares)
        return (S + S.T) / 2, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def first_moments(self, u):
        """``sum_i u_i x_i`` (d,) and a bound of its error in Euclidean norm."""
        s = sum((self.X[b].T @ u[b] for b in self._blocks()), np.zeros(self.d, dtype=self.dtype))
        size = float(np.abs(u).astype(float) @ np.sqrt(self.squares))
        return s, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def total(self, u):
        """``sum_i u_i`` and a bound of its error."""
        return self.dot(u, np.ones(self.n, dtype=self.dtype))

    def forms(self, M):
        """``x_i^T M x_i`` (n,), without error bound."""
        return np.sum((self.X @ M.astype(self.dtype)) * self.X, axis=1)

    def terms(self, b, c):
        """``b . x_i + c`` (n,), without error bound."""
        return self.X @ b.astype(self.dtype) + c
