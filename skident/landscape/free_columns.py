"""Directions that cost nothing: a vector made orthogonal to them, and a proof of how nearly it is."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.linalg import smat, svec, svec_outer

from .wide import gamma, norm_above, slightly_above, slightly_below

__all__ = ["FreeColumns", "free_columns"]

_CHUNK = 256


class FreeColumns:
    """Columns B (n, p) that a dual vector must be orthogonal to: ``svec(x x^T)``, x and 1, as far as they are free.

    Parameters
    ----------
    rows : WideRows
    forms : bool
        Whether quadratic forms are among them.
    factor : ndarray of shape (p, p)
        Lower Cholesky factor of ``B^T B``.
    smallest : float
        Proven: no singular value of B is below it.
    """

    def __init__(self, rows, forms, factor, smallest):
        self.rows, self.forms, self.factor, self.smallest = rows, forms, factor, smallest

    def in_rows(self, rows):
        """The same columns with sums of another precision.

        Parameters
        ----------
        rows : WideRows
            Of the same problem.

        Returns
        -------
        FreeColumns
        """
        return FreeColumns(rows, self.forms, self.factor, self.smallest)

    def products(self, u):
        """``B^T u`` in double precision.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (p,)
        """
        terms = self.rows.problem
        parts = [svec(self.rows.second_moments(u)[0].astype(float))] if self.forms else []
        parts += [self.rows.first_moments(u)[0]] if terms.fit_linear else []
        parts += [[self.rows.total(u)[0]]] if terms.fit_intercept else []
        return np.concatenate(parts).astype(float) if parts else np.zeros(0)

    def without(self, u, repeats=2):
        """What B leaves of a vector, up to rounding.

        Parameters
        ----------
        u : ndarray of shape (n,)
        repeats : int, default=2
            Each takes away most of what the rounding of the one before it left.

        Returns
        -------
        ndarray of shape (n,)
        """
        d, terms = self.rows.d, self.rows.problem
        q = d * (d + 1) // 2 if self.forms else 0
        for _ in range(repeats if len(self.factor) else 0):
            step = scipy.linalg.cho_solve((self.factor, True), self.products(u), check_finite=False)
            b = step[q : q + d] if terms.fit_linear else np.zeros(d)
            u = u - self.rows.terms(b, step[-1] if terms.fit_intercept else 0.0)
            u = u - self.rows.forms(smat(step[:q], d)) if q else u
        return u

    def remainder(self, u):
        """How much a vector has in the span of B at most.

        ``||P u|| <= ||B^T u|| / sigma_min(B)``, both proven.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        float
        """
        terms, parts = self.rows.problem, []
        parts += [self.rows.second_moments(u)] if self.forms else []
        parts += [self.rows.first_moments(u)] if terms.fit_linear else []
        parts += [self.rows.total(u)] if terms.fit_intercept else []
        sizes = [norm_above(s) + e for s, e in parts]
        return slightly_above(norm_above(sizes) / self.smallest)


def free_columns(rows, forms):
    """`FreeColumns` of a problem's terms, if double precision can prove them independent.

    Parameters
    ----------
    rows : WideRows
    forms : bool
        Whether to include all quadratic forms.

    Returns
    -------
    FreeColumns or None

    Notes
    -----
    The Gram matrix takes O(n p^2). With a bound e of its error and of that of a Cholesky factorisation
    (``2 gamma_p tr``), a factorisation of ``B^T B - t`` that runs to its end proves ``sigma_min(B)^2 >= t - e``.

    References
    ----------
    S. M. Rump (2006), "Verification of positive definiteness", BIT 46, 433-452.
    """
    problem = rows.problem
    if not (forms or problem.fit_linear or problem.fit_intercept):
        return FreeColumns(rows, forms, np.zeros((0, 0)), np.inf)
    gram, n_chunks = 0.0, 0
    for start in range(0, rows.n, _CHUNK):
        X = problem.X[start : start + _CHUNK]
        blocks = [svec_outer(X)] if forms else []
        blocks += [X] if problem.fit_linear else []
        blocks += [np.ones((len(X), 1))] if problem.fit_intercept else []
        B = np.hstack(blocks)
        gram, n_chunks = gram + B.T @ B, n_chunks + 1
    if rows.n < len(gram):
        return None
    factor = _cholesky(gram, 0.0)
    if factor is None:
        return None
    trace = float(np.trace(gram))
    error = slightly_above((gamma(_CHUNK + n_chunks + 16, float) + 2.0 * gamma(len(gram) + 2, float)) * trace)
    shift = 0.5 * _lowest_value(factor)
    for _ in range(4):
        if shift <= 2.0 * error:
            return None
        if _cholesky(gram, shift) is not None:
            return FreeColumns(rows, forms, factor, slightly_below(np.sqrt(slightly_below(shift - error))))
        shift *= 0.25
    return None


def _cholesky(gram, shift):
    """Lower factor of ``gram - shift``, or None."""
    shifted = gram - shift * np.eye(len(gram)) if shift else gram
    try:
        return scipy.linalg.cholesky(shifted, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None


def _lowest_value(factor, steps=8):
    """About the smallest eigenvalue of the matrix of a Cholesky factor, by inverse iteration."""
    z, value = np.cos(np.arange(len(factor), dtype=float)), 0.0
    for _ in range(steps):
        z /= np.linalg.norm(z)
        z = scipy.linalg.cho_solve((factor, True), z, check_finite=False)
        value = 1.0 / max(float(np.linalg.norm(z)), 1e-300)
    return value
