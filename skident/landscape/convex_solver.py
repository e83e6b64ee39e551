"""Least squares over quadratic forms ``M = W^T D_v W`` by factorization and conjugate gradients; the convex problem."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from skident.budget.constants import BLOCK_ENTRIES, CONSTANT_TOL, NULL_EIGENVALUE, PROGRESS
from skident.linalg import smat, svec, svec_outer
from skident.optim import conjugate_gradients

_SINGLE_PRECISION_FROM = 1500  # order of the preconditioner's factor; single precision is three times faster
# Reciprocal condition numbers from which a rank decision is safe: about 5000 eps, and 100 eps of single precision.
_SAFE_RCOND = {np.float64: 1e-12, np.float32: 1e-5}
_SVD_WORK = 2e10  # multiplications of a singular value decomposition (budget): seconds
# Added to the diagonal, relative to its mean, against rounding; conjugate gradients correct it.
_SHIFT = {np.float64: 1e-15, np.float32: 3e-6}
_NEARLY = 100.0  # times the tolerance: a residual that counts as converged, as rounding ends the iteration earlier


@dataclass
class ConvexSolution:
    """A minimizer of a `QuadraticProblem`."""

    M: np.ndarray  # (d, d)
    value: float  # f(M)
    method: str  # factorized: "kernel" (n x n), "gram" (of the unknowns) or "svd" (the features)
    n_iter: int  # preconditioned conjugate gradient steps
    rank_is_certain: bool  # whether no direction that could lower the loss was mistaken for rounding


def least_squares_size(problem):
    """Order of the matrix that `solve_convex` factorizes: min(n, unknowns)."""
    return min(problem.n, problem.n_unknowns)


def solve_convex(problem, *, start=None, tol=1e-13, max_iter=300):
    """Minimize a `QuadraticProblem` over symmetric matrices; without ridge, the minimizer nearest to `start` (d, d).

    With ``Phi`` the n rows ``(svec(x x^T), x)``: the system is ``(Phi Phi^T + n alpha) u = y`` if there are at most as
    many samples as unknowns, where ``Phi Phi^T`` is the kernel ``(x . x')^2 + x . x'`` and Phi is not formed, else the
    normal equations. One Cholesky factorization of order ``s = min(n, unknowns)``, in single precision from 1500 on,
    then conjugate gradients on the exact operator to a relative residual of `tol`, so errors are those of double
    precision. If that does not converge (linearly dependent features and no ridge), the singular value decomposition of
    Phi. Cost ``O(s^3 + n d^2)`` and for the normal equations ``O(n s^2)``; memory ``s^2`` numbers.
    """
    system = QuadraticSystem(problem)
    start = np.zeros(system.n_unknowns) if start is None else system.pack(start, problem.side_terms(start)[0])
    size, n_iter = least_squares_size(problem), 0
    for dtype in (np.float32, np.float64) if size > _SINGLE_PRECISION_FROM else (np.float64,):
        factor, rcond = system.factor(dtype)
        if factor is None:
            continue
        params, steps, converged = system.solve(factor, start, tol, max_iter)
        n_iter += steps
        if converged and (problem.alpha > 0 or rcond >= _SAFE_RCOND[dtype] or _fits_exactly(system, params)):
            return _solution(system, params, "kernel" if system.dual else "gram", n_iter, True)
    if problem.n * problem.n_unknowns * size <= _SVD_WORK:
        return _solution(system, system.solve_by_svd(start), "svd", n_iter, True)
    params = start if factor is None else params
    return _solution(system, params, "kernel" if system.dual else "gram", n_iter, False)


def _solution(system, params, method, n_iter, certain):
    """The `ConvexSolution` of given unknowns."""
    M = smat(params[: system.q], system.problem.d)
    return ConvexSolution(M, system.problem.value(M), method, n_iter, certain)


def _fits_exactly(system, params):
    """Whether the loss is zero to rounding, so that nothing can lower it."""
    error = system.target - system.apply(params)
    return float(error @ error) <= CONSTANT_TOL * float(system.target @ system.target)


class QuadraticSystem:
    """The linear system of a problem, in p unknowns ``params = (svec(M), b / sqrt(linear_weight))``.

    Phi (n, p) has a row ``(svec(x x^T), sqrt(linear_weight) x) / sqrt(n)`` per sample x, centered if there is an
    intercept. The system's matrix is ``Phi Phi^T + alpha`` (n, n) if there are at most as many samples as unknowns
    (`dual`), else ``Phi^T Phi + alpha`` (p, p). Rows and targets are multiplied by the roots of the samples' weights.
    """

    def __init__(self, problem):
        self.problem = problem
        self.dual = problem.n <= problem.n_unknowns
        self.q = problem.d * (problem.d + 1) // 2
        self.n_unknowns = problem.n_unknowns
        self.root = np.sqrt(problem.linear_weight)
        self.roots = problem.roots / np.sqrt(problem.n)
        self.constant = self.roots / np.linalg.norm(self.roots)
        self.target = self._centered(self.roots * problem.y)

    def _centered(self, u):
        """u minus its part along the constant if there is an intercept."""
        return u - self.constant * (self.constant @ u) if self.problem.fit_intercept else u

    def pack(self, M, b):
        """The unknowns (p,) of a form M and its linear terms b."""
        linear = [b / self.root] if self.problem.fit_linear else []
        return np.concatenate([svec(M), *linear])

    def apply(self, params):
        """Phi params, (n,)."""
        p = self.problem
        values = p.forms(smat(params[: self.q], p.d))
        if p.fit_linear:
            values = values + p.linear_inputs @ (self.root * params[self.q :])
        return self._centered(self.roots * values)

    def adjoint(self, u):
        """Phi^T u, (p,)."""
        p, u = self.problem, self._centered(u)
        linear = [self.root * (p.linear_inputs.T @ (self.roots * u))] if p.fit_linear else []
        return np.concatenate([svec(p.adjoint(u / self.roots)), *linear])

    def _features(self, rows=slice(None)):
        """Rows of Phi, neither centered nor multiplied by roots."""
        p = self.problem
        linear = [self.root * p.linear_inputs[rows]] if p.fit_linear else []
        return np.hstack([svec_outer(p.X[rows]), *linear])

    def _kernel(self, dtype):
        """Phi Phi^T (n, n)."""
        p = self.problem
        X = p.X.astype(dtype)
        K = X @ X.T
        K *= K
        if p.fit_linear:
            Z = (self.root * p.linear_inputs).astype(dtype)
            K += Z @ Z.T
        if p.fit_intercept:
            means = np.average(K, axis=0, weights=p.weights).astype(dtype)
            K -= means[None, :]
            K -= means[:, None]
            K += dtype(np.average(means, weights=p.weights))
        K *= self.roots.astype(dtype)
        K *= self.roots.astype(dtype)[:, None]
        return K

    def _gram(self, dtype):
        """Phi^T Phi (p, p), in chunks."""
        p, size = self.problem, max(1, BLOCK_ENTRIES // self.n_unknowns)
        chunks = [slice(i, i + size) for i in range(0, p.n, size)]
        mean = sum(self.roots[c] ** 2 @ self._features(c) for c in chunks) if p.fit_intercept else 0.0
        G = np.zeros((self.n_unknowns, self.n_unknowns), dtype=dtype)
        for c in chunks:
            F = (self.roots[c, None] * (self._features(c) - mean)).astype(dtype)
            G += F.T @ F
        return G

    def left_vectors(self):
        """Left singular vectors (n, r) of Phi and its squared singular values (r,), without those near zero."""
        if self.dual:
            values, U = np.linalg.eigh(self._kernel(np.float64))
            kept = values > NULL_EIGENVALUE * max(values[-1], 0.0)
            return U[:, kept], values[kept]
        F = self.roots[:, None] * self.problem.centered(self._features())
        values, V = np.linalg.eigh(F.T @ F)
        kept = values > NULL_EIGENVALUE * max(values[-1], 0.0)
        return (F @ V[:, kept]) / np.sqrt(values[kept]), values[kept]

    def factor(self, dtype):
        """Lower Cholesky factor (s, s) of the system's matrix (None if indefinite), and its reciprocal condition."""
        A = self._kernel(dtype) if self.dual else self._gram(dtype)
        diagonal = np.einsum("ii->i", A)
        if self.dual and self.problem.fit_intercept:  # the constant direction, which is orthogonal to the target
            A += np.outer((diagonal.mean() * self.constant).astype(dtype), self.constant.astype(dtype))
        # Single precision loses the small eigenvalues; they are shifted away from zero.
        mean = float(diagonal.mean())
        diagonal += dtype(self.problem.alpha + _SHIFT[dtype] * mean)
        norm = float(np.abs(A).sum(axis=0).max())
        try:
            L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None, 0.0
        rcond, _ = (lapack.spocon if dtype is np.float32 else lapack.dpocon)(L, norm, uplo="L")
        return L, float(rcond)

    def product(self, u):
        """The exact system matrix applied to a vector (s,)."""
        forward, back = (self.adjoint, self.apply) if self.dual else (self.apply, self.adjoint)
        return back(forward(u)) + self.problem.alpha * u

    def solve(self, L, start, tol, max_iter):
        """The unknowns by conjugate gradients, preconditioned with the factor L; number of steps; whether converged.

        They restart from the true residual, which gives the last digits. `tol` is relative to the right-hand side.
        """
        base, z, right = self._begin(start)
        size, best, steps = np.linalg.norm(right), (np.inf, z), 0
        while steps < max_iter:
            residual = right - self.product(z)
            norm = np.linalg.norm(residual)
            if not norm < PROGRESS * best[0]:
                break
            best = (norm, z)
            if norm <= tol * size:
                break
            solution = conjugate_gradients(
                self.product, residual, precondition=_preconditioner(L), own_norm=True, max_iter=max_iter - steps
            )
            z, steps = z + solution.x, steps + solution.n_products
        norm, z = best
        return (base + self.adjoint(z) if self.dual else z), steps, bool(norm <= _NEARLY * tol * size)

    def _begin(self, start):
        """The offset of the solution, its first value, and the right-hand side."""
        if not self.dual:
            return 0.0, start, self.adjoint(self.target)
        if self.problem.alpha > 0:
            return 0.0, np.zeros(self.problem.n), self.target
        return start, np.zeros(self.problem.n), self.target - self.apply(start)

    def solve_by_svd(self, start):
        """The unknowns from all singular values of Phi above rounding; without ridge nearest to `start`."""
        F = self._features()
        before = np.linalg.norm(self.roots[:, None] * F, axis=0)
        if self.problem.fit_linear:  # centered already
            before[self.q :] = self.root * np.linalg.norm(self.roots[:, None] * self.problem.X, axis=0)
        F = self.roots[:, None] * self.problem.centered(F)
        sizes = np.linalg.norm(F, axis=0)
        # A centered constant column is rounding, and must not be scaled up.
        constant = sizes <= 10.0 * np.finfo(float).eps * before
        F[:, constant] = 0.0
        # Without ridge, columns of norm one: inputs of small scale must not be mistaken for rounding.
        sizes = np.where(constant | (self.problem.alpha > 0), 1.0, sizes)
        U, S, Vt = scipy.linalg.svd(F / sizes, full_matrices=False, check_finite=False)
        kept = S > max(F.shape) * np.finfo(float).eps * S[0] if S[0] > 0 else S > 0
        U, S, Vt = U[:, kept], S[kept], Vt[kept]
        base = start if self.problem.alpha == 0 else np.zeros_like(start)
        filtered = S / (S**2 + self.problem.alpha)
        for _ in range(2):  # the second pass corrects the rounding of the first
            error = self.target - self.apply(base)
            base = base + Vt.T @ (filtered * (U.T @ error) - self.problem.alpha * filtered / S * (Vt @ base)) / sizes
        return base


def _preconditioner(L):
    """``v -> (L L^T)^-1 v``; v is normalized, so that single precision does not underflow."""

    def precondition(r):
        size = np.linalg.norm(r)
        return size * scipy.linalg.cho_solve((L, True), (r / size).astype(L.dtype), check_finite=False).astype(float)

    return precondition
