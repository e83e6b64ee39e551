"""Sums over rows in the widest floats there are, with proven bounds of what rounding does to them."""

from __future__ import annotations

import functools
import math

import numpy as np

from .offsets import exact_offsets
from .problem import LossTerms, QuadraticProblem

__all__ = [
    "WideRows",
    "column_exponents",
    "gamma",
    "norm_above",
    "normalised",
    "precisions",
    "slightly_above",
    "slightly_below",
]

# IEEE formats only: the bounds below are those of operations that are rounded correctly.
_WIDE = np.longdouble if np.finfo(np.longdouble).nmant in (63, 112) else np.float64
# Multiplications up to which wide floats cost next to nothing, and up to which they cost less than half a second.
_NO_WORK, _WIDE_WORK = 1e5, 3e7
_BLOCK = 128
# More than numbers that underflow can add up to, for data whose largest numbers are about 1.
_UNDERFLOW = 1e-280


def precisions(problem):
    """Formats in which to try sums over the rows of a problem, one after the other.

    Parameters
    ----------
    problem : QuadraticProblem

    Returns
    -------
    list of dtype
        Double precision first where wide floats would take longer than a few milliseconds.
    """
    work = problem.n * problem.d**2
    return [np.float64] * bool(work > _NO_WORK) + [_WIDE] * bool(work <= _WIDE_WORK)


def collinearity(problem):
    """How far the inputs are from being linearly dependent, in double precision.

    Parameters
    ----------
    problem : QuadraticProblem

    Returns
    -------
    float
        Smallest singular value of the inputs over the largest, in columns of equal length; with linear and constant
        terms of the centred inputs. 0 where there are fewer rows than inputs.
    """
    X = problem.linear_inputs if problem.fit_intercept and problem.fit_linear else problem.X
    largest = np.abs(X).max(axis=0)
    X = X / np.where(largest > 0, largest, 1.0)
    S = np.linalg.svd(X / np.maximum(np.linalg.norm(X, axis=0), 1e-300), compute_uv=False)
    return float(S[-1] / S[0]) if len(S) == problem.d and S[0] > 0 else 0.0


def gamma(operations, dtype):
    """Relative error of a sum of products after so many roundings in a row, twice as much as Higham's gamma.

    Parameters
    ----------
    operations : int
    dtype : dtype

    Returns
    -------
    float
        The second half covers the roundings of error bounds themselves, which are computed in double precision.

    References
    ----------
    Higham (2002), "Accuracy and Stability of Numerical Algorithms", Lemma 3.1.
    """
    return float(operations * np.finfo(dtype).eps)


def slightly_above(x):
    """A nonnegative number made larger by more than forty roundings.

    Parameters
    ----------
    x : float

    Returns
    -------
    float
    """
    return float(x) * (1.0 + 1e-14) + _UNDERFLOW


def slightly_below(x):
    """A number made smaller by more than forty roundings, not below 0.

    Parameters
    ----------
    x : float

    Returns
    -------
    float
    """
    return max(0.0, float(x) * (1.0 - 1e-14) - _UNDERFLOW)


def norm_above(a):
    """A number that the Euclidean norm of an array's entries is not above, close to it.

    Parameters
    ----------
    a : ndarray
        In double precision or wide.

    Returns
    -------
    float
    """
    entries = np.ravel(a).astype(float)
    return slightly_above(math.sqrt(math.fsum((entries * entries).tolist())))


def column_exponents(X, alike):
    """Powers of two about as large as the columns' root mean squares.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    alike : bool
        Whether all columns get the largest one.

    Returns
    -------
    ndarray of shape (d,) of int
    """
    largest = np.abs(X).max(axis=0)
    sizes = largest * np.sqrt(np.mean((X / np.where(largest > 0, largest, 1.0)) ** 2, axis=0))
    sizes = np.full(len(sizes), sizes.max()) if alike else sizes
    return np.where(sizes > 0, np.frexp(sizes)[1], 0)


def normalised(problem, centred=True):
    """The same problem in powers of two as units, in which inputs and targets are about 1.

    Without ridge every input has its own unit, and where there are linear and constant terms large means are taken
    away, as far as that is exact.

    Parameters
    ----------
    problem : QuadraticProblem
    centred : bool, default=True
        Whether means may be taken away.

    Returns
    -------
    problem : QuadraticProblem or None
        None where a number would underflow.
    exponents : ndarray of shape (d,)
        Inputs were multiplied by ``2^-exponents``.
    y_exponent : int
        Targets were multiplied by ``2^-y_exponent``, losses by its square.
    """
    X, terms = _without_means(problem) if centred else problem.X, problem.terms
    exponents = column_exponents(X, alike=terms.alpha > 0)
    y_exponent = int(column_exponents(problem.y[:, None], alike=True)[0])
    Z, y = np.ldexp(X, -exponents), np.ldexp(problem.y, -y_exponent)
    exact = np.array_equal(np.ldexp(Z, exponents), X) and np.array_equal(np.ldexp(y, y_exponent), problem.y)
    if exact and terms.alpha > 0:
        e = int(exponents[0])
        alpha, weight = (float(np.ldexp(a, k)) for a, k in ((terms.alpha, -4 * e), (terms.linear_weight, -2 * e)))
        exact = 1e-250 < alpha < 1e250 and 1e-250 < weight < 1e250
        terms = LossTerms(alpha, terms.fit_intercept, terms.fit_linear, weight) if exact else terms
    return (QuadraticProblem(Z, y, terms) if exact else None), exponents, y_exponent


def _without_means(problem):
    """Inputs less large means, which is exact where these are rounded to few digits; as they are where it is not."""
    if not (problem.fit_intercept and problem.fit_linear and problem.alpha == 0):
        return problem.X
    return problem.X - exact_offsets(problem.X)


class WideRows:
    """Inputs and targets of a problem, and sums over them with bounds of their errors.

    Parameters
    ----------
    problem : QuadraticProblem
        Normalised, so that nothing that matters underflows.
    dtype : dtype, default=None
        Of `precisions`; None is the last one.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
        Less their mean where there is an intercept, up to one rounding.
    dtype : dtype
    depth : int
        Roundings in a row that a sum over all rows takes.
    """

    def __init__(self, problem, dtype=None):
        self.problem, (self.n, self.d) = problem, problem.X.shape
        self.dtype = np.dtype(precisions(problem)[-1] if dtype is None else dtype)
        self.X, self.y = problem.X.astype(self.dtype), problem.y.astype(self.dtype)
        if problem.fit_intercept:
            self.y = self.y - problem.y.mean()
        self.depth = min(self.n, _BLOCK) + self.n // _BLOCK + 8

    @functools.cached_property
    def squares(self):
        """``|x_i|^2`` (n,), to rounding."""
        return np.sum(self.problem.X**2, axis=1)

    def _blocks(self):
        return (slice(i, i + _BLOCK) for i in range(0, self.n, _BLOCK))

    def dot(self, u, w):
        """``<u, w>`` and a bound of its error.

        Parameters
        ----------
        u, w : ndarray of shape (n,)

        Returns
        -------
        value : float
            Wide.
        error : float
        """
        value = sum((u[b] @ w[b] for b in self._blocks()), self.dtype.type(0))
        size = float(np.abs(u).astype(float) @ np.abs(w).astype(float))
        return value, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def square(self, u):
        """A number that ``||u||^2`` is not above.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        float
        """
        value, error = self.dot(u, u)
        return slightly_above(float(value) + error)

    def second_moments(self, u):
        """``sum_i u_i x_i x_i^T`` and a bound of its error in Frobenius norm.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        S : ndarray of shape (d, d)
            Symmetric.
        error : float
        """
        S = np.zeros((self.d, self.d), dtype=self.dtype)
        for b in self._blocks():
            S += (self.X[b] * u[b, None]).T @ self.X[b]
        size = float(np.abs(u).astype(float) @ self.squares)
        return (S + S.T) / 2, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def first_moments(self, u):
        """``sum_i u_i x_i`` and a bound of its error in Euclidean norm.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        s : ndarray of shape (d,)
        error : float
        """
        s = sum((self.X[b].T @ u[b] for b in self._blocks()), np.zeros(self.d, dtype=self.dtype))
        size = float(np.abs(u).astype(float) @ np.sqrt(self.squares))
        return s, gamma(self.depth, self.dtype) * size + _UNDERFLOW

    def total(self, u):
        """``sum_i u_i`` and a bound of its error.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        value : float
        error : float
        """
        return self.dot(u, np.ones(self.n, dtype=self.dtype))

    def forms(self, M):
        """``x_i^T M x_i``, no error bounded.

        Parameters
        ----------
        M : ndarray of shape (d, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        return np.sum((self.X @ M.astype(self.dtype)) * self.X, axis=1)

    def terms(self, b, c):
        """``b . x_i + c``, no error bounded.

        Parameters
        ----------
        b : ndarray of shape (d,)
        c : float

        Returns
        -------
        ndarray of shape (n,)
        """
        return self.X @ b.astype(self.dtype) + c
