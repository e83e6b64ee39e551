"""All classes at once: logits are linear in (|z|, x, 1) with zero differences on the boundary, up to a null space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from skident.budget import check_deadline
from skident.linalg import lapack, svd

from ...constants import BISECTION_ERROR
from .large import jumps_fitted
from .points import sizes

__all__ = ["MAX_UNKNOWNS", "Logits", "Precision", "damped_solution", "features", "null_space", "refined", "separating"]

MAX_UNKNOWNS = 6000  # of the joint least squares (memory and time)
_NEAR_BEND = 1e-6  # distance from a hyperplane within which the side of a point is uncertain
_NULL_TOL = 2e-9  # singular value per root of the points that is a null vector of accurate hyperplanes
_SINGULAR = 1e-14  # diagonal entry of a triangular factor, over the largest one, that is zero (rounding)
_BLOCK = 64  # columns of a block of a factorization that rows are added to (processor time)
_MOST = 0.9  # of new boundary points, whose standard errors are bounded (statistics)
_LARGE_ROUNDS = 4  # fits of large networks: the activation patterns near bends are better known after each (budget)
_FITTED = 1e-13  # largest residual after which no further one follows (rounding)
_LARGEST = 10.0  # over the usual residual (statistics)
_FALLING = 0.3  # factor by which the largest residual must fall from one to the next (budget)
_CONVERGED = 1e-12  # largest residual from which a step that hardly lowers it is the last one (rounding)
_FALLING_STEP = 0.5  # factor by which a step must lower it
_UNDAMPED = 100.0  # dampings below the smallest singular value, where damping has no effect
_ITERATIONS = 4  # of the inverse iteration for that value
_LEFT_OUT = 100.0  # median residuals beyond which a point leaves the fit


@dataclass(frozen=True)
class Logits:
    """Hyperplanes (m, D + 1) and coefficients (m + D + 1, K) of (|z|, x, 1); class 0 has none (a common function)."""

    hyperplanes: np.ndarray
    coef: np.ndarray

    def __call__(self, X):
        """Logits (n, K)."""
        return features(self.hyperplanes, X) @ self.coef

    def predict(self, X):
        """Indices of the labels (n,)."""
        return np.argmax(self(X), axis=1)

    def gradients(self, X, pairs):
        """Gradients (n, D) of the differences of logits of pairs (n, 2)."""
        m, d = len(self.hyperplanes), (self.coef[:, pairs[:, 0]] - self.coef[:, pairs[:, 1]]).T
        signs = np.sign(X @ self.hyperplanes[:, :-1].T + self.hyperplanes[:, -1])
        return (d[:, :m] * signs) @ self.hyperplanes[:, :-1] + d[:, m:-1]

    def distances(self, X, pairs):
        """Distances (n,) of points from the boundary of pairs (n, 2), over 1 + |x|, to first order."""
        rows = np.arange(len(X))
        values = self(X)
        slopes = np.linalg.norm(self.gradients(X, pairs), axis=1)
        return np.abs(values[rows, pairs[:, 0]] - values[rows, pairs[:, 1]]) / (sizes(X) * np.maximum(slopes, 1e-300))


def features(H, X):
    """(|z|, x, 1) of inputs X (n, D)."""
    one = np.column_stack([X, np.ones(len(X))])
    return np.column_stack([np.abs(one @ H.T), one])


def null_space(H, X, pairs, n_classes, tol=_NULL_TOL):
    """Coefficients (k, F, K) that vanish on boundary points, and all singular values; the smallest first."""
    F = features(H, X) / sizes(X)[:, None]
    rows = np.arange(len(X))
    M = np.zeros((len(X), n_classes, F.shape[1]))
    M[rows, pairs[:, 0]] += F
    M[rows, pairs[:, 1]] -= F
    M = M[:, 1:].reshape(len(X), -1)
    if len(M) > 2 * M.shape[1]:
        M = lapack.qr(M, mode="r")
    _, s, V = svd(M)
    s = np.append(s, np.zeros(M.shape[1] - len(s)))[::-1]
    bound = tol * np.sqrt(len(X))
    k = int(np.sum(s < bound))
    N = np.zeros((k, F.shape[1], n_classes))
    N[:, :, 1:] = V[::-1][:k].reshape(k, n_classes - 1, F.shape[1]).transpose(0, 2, 1)
    return N, s


def separating(H, N, X, seen):
    """The combination (F, K) of null vectors N that gives inputs X their labels with the largest margin, or None."""
    F = features(H, X)
    F /= np.linalg.norm(F, axis=1)[:, None]
    values = np.einsum("nf,kfc->nck", F, N)
    rows = np.arange(len(X))
    margins = values[rows, seen][:, None] - values
    keep = np.ones(margins.shape[:2], dtype=bool)
    keep[rows, seen] = False
    G = margins[keep]
    k = len(N)
    found = linprog(
        np.append(np.zeros(k), -1.0), A_ub=np.column_stack([-G, np.ones(len(G))]), b_ub=np.zeros(len(G)),
        bounds=[(-1, 1)] * k + [(None, 1)], method="highs",
    )  # fmt: skip
    if found.status != 0 or -found.fun <= 1e-12:
        return None
    return np.einsum("k,kfc->fc", found.x[:k], N)


def refined(logits, X, pairs, steps=4, damping=1e-10, enough=2e-15):
    """Gauss-Newton over hyperplanes and coefficients at boundary points; the logits and the largest residual.

    `damping` is relative to the usual coefficient of an equation: combinations that the points determine less stay.
    No step follows once the largest residual is `enough`.
    """
    H, coef = logits.hyperplanes.copy(), logits.coef / np.linalg.norm(logits.coef)
    m, best = len(H), (np.inf, logits)
    if H.size + coef[:, 1:].size > MAX_UNKNOWNS:
        return _refined_large(logits, X, pairs, enough)
    for step in range(steps + 1):
        check_deadline()
        r, J, keep = _linearized(H, coef, X, pairs)
        worst = np.abs(r[keep]).max(initial=0.0)
        converged = worst < _CONVERGED and worst > _FALLING_STEP * best[0]
        if worst < best[0]:
            best = worst, Logits(H.copy(), coef.copy())
        if step == steps or worst < enough or converged:
            break
        system, target = np.vstack([J[keep], _gauge(H, coef)]), np.append(-r[keep], np.zeros(1 + m))
        change = damped_solution(system, target, damping)
        H = H + change[: H.size].reshape(H.shape)
        coef = coef.copy()
        coef[:, 1:] += change[H.size :].reshape(coef.shape[1] - 1, -1).T
        norms = np.linalg.norm(H[:, :-1], axis=1)
        H, coef[:m] = H / norms[:, None], coef[:m] * norms[:, None]
    return best[1], best[0]


def _refined_large(logits, X, pairs, enough):
    if logits.coef.shape[1] > 2:
        return logits, np.inf
    H, column, worst = logits.hyperplanes, logits.coef[:, 1] - logits.coef[:, 0], np.inf
    for _ in range(_LARGE_ROUNDS):
        H, column = jumps_fitted(H, column, X, enough)
        found = Logits(H, np.column_stack([np.zeros(len(column)), column]))
        off = found.distances(X, pairs)
        before, worst = worst, off[off < 1e-6 + _LEFT_OUT * np.median(off)].max(initial=0.0)
        if worst < max(_FITTED, _LARGEST * enough) or worst > _FALLING * before:
            break
    return found, worst


def _gauge(H, coef):
    """Equations (1 + m, unknowns) that keep the norms of the coefficients and of the normals."""
    m = len(H)
    gauge = np.zeros((1 + m, H.size + coef[:, 1:].size))
    gauge[0, H.size :] = coef[:, 1:].T.ravel()
    for j in range(m):
        gauge[1 + j, j * H.shape[1] : (j + 1) * H.shape[1] - 1] = H[j, :-1] / m
    return gauge


class Precision:
    """Standard errors of hyperplanes that were fitted to boundary points with errors of rounding."""

    def __init__(self, logits):
        self._H, self._coef = logits.hyperplanes, logits.coef / np.linalg.norm(logits.coef)
        self._R = _gauge(self._H, self._coef)

    def add(self, X, pairs):
        """Take in more boundary points; the standard error of the boundary there before, relative to 1 + |x|."""
        _, J, keep = _linearized(self._H, self._coef, X, pairs)
        errors = np.inf
        if self._regular() and len(X):
            leverages = np.sum(scipy.linalg.solve_triangular(self._R, J.T, trans=1) ** 2, axis=0)
            errors = BISECTION_ERROR * np.sqrt(np.quantile(leverages, _MOST))
        self._R = _with_rows(self._R, J[keep])
        return errors

    def _regular(self):
        """Whether the boundary points determine all unknowns."""
        sizes = np.abs(np.diag(self._R))
        return len(sizes) == self._R.shape[1] and sizes.min() >= _SINGULAR * sizes.max()

    @property
    def error(self):
        """The largest standard error of an entry of a hyperplane."""
        if not self._regular():
            return np.inf
        inverse = scipy.linalg.lapack.dtrtri(self._R)[0]
        return BISECTION_ERROR * np.sqrt(np.sum(inverse[: self._H.size] ** 2, axis=1).max(initial=0.0))


def _with_rows(R, J):
    """Triangular factor of the rows that `R` (k, n) factorizes and rows J; those of a square one cost n^2 each."""
    if R.shape[0] == R.shape[1]:
        return np.triu(scipy.linalg.lapack.dtpqrt(0, min(_BLOCK, len(R)), R, J)[0])
    return lapack.qr(np.vstack([R, J]), mode="r")


def damped_solution(A, b, damping):
    """Damped least squares: about the shortest solution if equations are missing."""
    n = A.shape[1]
    damping = damping * np.sqrt(np.mean(A**2))
    R = lapack.qr(np.column_stack([A, b]), mode="r")
    if len(A) < n or _smallest_singular_value(R[:n, :n]) < _UNDAMPED * damping:
        R = lapack.qr(np.vstack([R, damping * np.eye(n, n + 1)]), mode="r")
    return scipy.linalg.solve_triangular(R[:n, :n], R[:n, n])


def _smallest_singular_value(R):
    """About the smallest singular value of a triangular matrix, by inverse iteration; 0 if it is singular."""
    if np.abs(np.diag(R)).min() < _SINGULAR * np.abs(np.diag(R)).max():
        return 0.0
    v = np.ones(len(R)) / np.sqrt(len(R))
    for _ in range(_ITERATIONS):
        v = scipy.linalg.solve_triangular(R, scipy.linalg.solve_triangular(R, v, trans=1))
        size = np.linalg.norm(v)
        v /= size
    return 1.0 / np.sqrt(size)


def _linearized(H, coef, X, pairs):
    """Residuals (n,) over distance, their Jacobian, and which points count."""
    m, one = len(H), np.column_stack([X, np.ones(len(X))])
    z, F = one @ H.T, features(H, X)
    d = (coef[:, pairs[:, 0]] - coef[:, pairs[:, 1]]).T
    gradient = (d[:, :m] * np.sign(z)) @ H[:, :-1] + d[:, m:-1]
    weight = sizes(X) * np.maximum(np.linalg.norm(gradient, axis=1), 1e-12)
    r = np.sum(F * d, axis=1) / weight
    keep = np.min(np.abs(z), axis=1, initial=np.inf) > _NEAR_BEND
    keep &= np.abs(r) < 1e-6 + _LEFT_OUT * np.median(np.abs(r))
    blocks = [(d[:, [j]] * np.sign(z[:, [j]])) * one for j in range(m)]
    for c in range(1, coef.shape[1]):
        blocks.append(((pairs[:, 0] == c).astype(float) - (pairs[:, 1] == c))[:, None] * F)
    return r, np.hstack(blocks) / weight[:, None], keep
