"""Unpenalized columns: projection of a vector off their span, and a proof of how nearly orthogonal the result is."""

import numpy as np
import scipy.linalg

from skident.linalg import smat, svec, svec_outer

from .bounded_sums import deflated, gamma, inflated, norm_upper_bound

_CHUNK = 256  # samples per product: fewer consecutive roundings than in one product
_SHIFTS = 4  # attempts to prove definiteness, each with an offset four times smaller


class UnpenalizedColumns:
    """Columns B (n, p) that a dual vector must be orthogonal to: ``svec(x x^T)``, x and 1, if they are not penalized.

    `factor` is the lower Cholesky factor (p, p) of ``B^T B``; no singular value of B is below `smallest` (proven).
    """

    def __init__(self, rows, forms, factor, smallest):
        self.rows, self.forms, self.factor, self.smallest = rows, forms, factor, smallest

    def in_rows(self, rows):
        """The same columns with sums of another precision, over the same problem."""
        return UnpenalizedColumns(rows, self.forms, self.factor, self.smallest)

    def products(self, u):
        """``B^T u`` (p,) in double precision."""
        terms = self.rows.problem
        parts = [svec(self.rows.second_moments(u)[0].astype(float))] if self.forms else []
        parts += [self.rows.first_moments(u)[0]] if terms.fit_linear else []
        parts += [[self.rows.total(u)[0]]] if terms.fit_intercept else []
        return np.concatenate(parts).astype(float) if parts else np.zeros(0)

    def without(self, u, repeats=2):
        """u minus its projection on B, up to rounding; a repetition removes most of the rounding of the one before."""
        d, terms = self.rows.d, self.rows.problem
        q = d * (d + 1) // 2 if self.forms else 0
        for _ in range(repeats if len(self.factor) else 0):
            step = scipy.linalg.cho_solve((self.factor, True), self.products(u), check_finite=False)
            b = step[q : q + d] if terms.fit_linear else np.zeros(d)
            u = u - self.rows.terms(b, step[-1] if terms.fit_intercept else 0.0)
            u = u - self.rows.forms(smat(step[:q], d)) if q else u
        return u

    def remainder(self, u):
        """Upper bound of the norm of u's projection: ``||P u|| <= ||B^T u|| / sigma_min(B)``, both proven."""
        terms, parts = self.rows.problem, []
        parts += [self.rows.second_moments(u)] if self.forms else []
        parts += [self.rows.first_moments(u)] if terms.fit_linear else []
        parts += [self.rows.total(u)] if terms.fit_intercept else []
        sizes = [norm_upper_bound(s) + e for s, e in parts]
        return inflated(norm_upper_bound(sizes) / self.smallest)


def unpenalized_columns(rows, forms):
    """`UnpenalizedColumns` of a problem's terms, if double precision can prove them independent; else None.

    With a bound e of the error of the Gram matrix and of a Cholesky factorization (``2 gamma_p tr``), a factorization
    of ``B^T B - t`` that succeeds proves ``sigma_min(B)^2 >= t - e``. O(n p^2). Source: S. M. Rump (2006),
    "Verification of positive definiteness", BIT 46, 433-452.
    """
    problem = rows.problem
    if not (forms or problem.fit_linear or problem.fit_intercept):
        return UnpenalizedColumns(rows, forms, np.zeros((0, 0)), np.inf)
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
    error = inflated((gamma(_CHUNK + n_chunks + 16, float) + 2.0 * gamma(len(gram) + 2, float)) * trace)
    shift = 0.5 * _lowest_value(factor)
    for _ in range(_SHIFTS):
        if shift <= 2.0 * error:
            return None
        if _cholesky(gram, shift) is not None:
            return UnpenalizedColumns(rows, forms, factor, deflated(np.sqrt(deflated(shift - error))))
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
    """Approximate smallest eigenvalue of the matrix of a Cholesky factor, by inverse iteration."""
    z, value = np.cos(np.arange(len(factor), dtype=float)), 0.0
    for _ in range(steps):
        z /= np.linalg.norm(z)
        z = scipy.linalg.cho_solve((factor, True), z, check_finite=False)
        value = 1.0 / max(float(np.linalg.norm(z)), 1e-300)
    return value
