"""The convex side of quadratic networks: least squares in ``M = W^T D_v W`` for up to a few thousand unknowns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from skident.linalg import smat, svec, svec_outer
from skident.optim import conjugate_gradients

__all__ = ["ConvexSolution", "QuadraticSystem", "least_squares_size", "solve_convex"]

# Above this size the factor that conjugate gradients are preconditioned with is single precision: three times faster.
_SINGLE_FROM = 1500
# Reciprocal condition numbers from which a rank decision is safe in double and in single precision.
_SAFE = {np.float64: 1e-12, np.float32: 1e-5}
# A singular value decomposition is affordable (seconds) up to this many multiplications.
_SVD_WORK = 2e10
_CHUNK = 2**22


@dataclass
class ConvexSolution:
    """A minimiser of `QuadraticProblem`.

    Attributes
    ----------
    M : ndarray of shape (d, d)
    value : float
        f(M).
    method : {"kernel", "gram", "svd"}
        What was factorised: the n x n kernel, the Gram matrix of the unknowns, or the features themselves.
    n_iter : int
        Preconditioned conjugate gradient steps.
    rank_is_certain : bool
        Whether no direction that could lower the loss was mistaken for rounding.
    """

    M: np.ndarray
    value: float
    method: str
    n_iter: int
    rank_is_certain: bool


def least_squares_size(problem):
    """Order of the matrix that `solve_convex` factorises.

    Parameters
    ----------
    problem : QuadraticProblem

    Returns
    -------
    int
        min(n, unknowns).
    """
    return min(problem.n, problem.n_unknowns)


def solve_convex(problem, *, start=None, tol=1e-13, max_iter=300):
    """Minimise `QuadraticProblem` over all symmetric matrices.

    Parameters
    ----------
    problem : QuadraticProblem
    start : ndarray of shape (d, d), default=None
        Where to start; without a ridge the answer is then the minimiser nearest to it, else it only saves steps.
    tol : float, default=1e-13
        Relative residual of the linear system.
    max_iter : int, default=300
        Conjugate gradient steps a factorisation.

    Returns
    -------
    ConvexSolution

    Notes
    -----
    With ``Phi`` the n rows ``(svec(x x^T), x)``: solved is ``(Phi Phi^T + n alpha) u = y`` when there are no more rows
    than unknowns, where ``Phi Phi^T`` is the kernel ``(x . x')^2 + x . x'`` and never needs Phi, else the normal
    equations. One Cholesky factorisation of order ``s = min(n, unknowns)``, in single precision from 1500 on, then
    conjugate gradients on the exact operator, so errors are those of double precision. Where that does not converge
    (linearly dependent features and no ridge), the singular value decomposition of Phi. Cost
    ``O(s^3 + n d^2)`` and for the normal equations ``O(n s^2)``; memory ``s^2`` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import QuadraticProblem
    >>> from skident.landscape.convex import solve_convex
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> solution = solve_convex(QuadraticProblem(X, X[:, 0] * X[:, 1]))
    >>> print(round(float(solution.M[0, 1]), 12))
    0.5
    """
    system = QuadraticSystem(problem)
    start = np.zeros(system.n_unknowns) if start is None else system.pack(start, problem.side_terms(start)[0])
    size, n_iter = least_squares_size(problem), 0
    for dtype in (np.float32, np.float64) if size > _SINGLE_FROM else (np.float64,):
        factor, rcond = system.factor(dtype)
        if factor is None:
            continue
        theta, steps, converged = system.solve(factor, start, tol, max_iter)
        n_iter += steps
        if converged and (problem.alpha > 0 or rcond >= _SAFE[dtype] or _fits_exactly(system, theta)):
            return _solution(system, theta, "kernel" if system.dual else "gram", n_iter, True)
    if problem.n * problem.n_unknowns * size <= _SVD_WORK:
        return _solution(system, system.solve_by_svd(start), "svd", n_iter, True)
    theta = start if factor is None else theta
    return _solution(system, theta, "kernel" if system.dual else "gram", n_iter, False)


def _solution(system, theta, method, n_iter, certain):
    M = smat(theta[: system.q], system.problem.d)
    return ConvexSolution(M, system.problem.value(M), method, n_iter, certain)


def _fits_exactly(system, theta):
    """Whether the loss is zero for all purposes, so that nothing can lower it."""
    error = system.target - system.apply(theta)
    return float(error @ error) <= 1e-12 * float(system.target @ system.target)


class QuadraticSystem:
    """The linear system of a problem, in p unknowns ``theta = (svec(M), b / sqrt(linear_weight))``.

    Phi (n, p) has a row ``(svec(x x^T), sqrt(linear_weight) x) / sqrt(n)`` for every x, less their means where there is
    an intercept. The system's matrix is ``Phi Phi^T + alpha`` (n, n) where there are no more rows than unknowns
    (`dual`), else ``Phi^T Phi + alpha`` (p, p).

    Parameters
    ----------
    problem : QuadraticProblem
    """

    def __init__(self, problem):
        self.problem = problem
        self.dual = problem.n <= problem.n_unknowns
        self.q = problem.d * (problem.d + 1) // 2
        self.n_unknowns = problem.n_unknowns
        self.root = np.sqrt(problem.linear_weight)
        self.target = self._centred(problem.y / np.sqrt(problem.n))

    def _centred(self, u):
        return u - u.mean() if self.problem.fit_intercept else u

    def pack(self, M, b):
        """The unknowns of a form and its linear terms.

        Parameters
        ----------
        M : ndarray of shape (d, d)
        b : ndarray of shape (d,)

        Returns
        -------
        ndarray of shape (p,)
        """
        linear = [b / self.root] if self.problem.fit_linear else []
        return np.concatenate([svec(M), *linear])

    def apply(self, theta):
        """Phi theta.

        Parameters
        ----------
        theta : ndarray of shape (p,)

        Returns
        -------
        ndarray of shape (n,)
        """
        p = self.problem
        values = p.forms(smat(theta[: self.q], p.d))
        if p.fit_linear:
            values = values + p.linear_inputs @ (self.root * theta[self.q :])
        return self._centred(values / np.sqrt(p.n))

    def adjoint(self, u):
        """Phi^T u.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (p,)
        """
        p, u = self.problem, self._centred(u)
        linear = [self.root * (p.linear_inputs.T @ u) / np.sqrt(p.n)] if p.fit_linear else []
        return np.concatenate([svec(p.adjoint(u * np.sqrt(p.n))), *linear])

    def _features(self, rows=slice(None)):
        """Rows of Phi, not centred."""
        p = self.problem
        linear = [self.root * p.linear_inputs[rows]] if p.fit_linear else []
        return np.hstack([svec_outer(p.X[rows]), *linear]) / np.sqrt(p.n)

    def _kernel(self, dtype):
        p = self.problem
        X = p.X.astype(dtype)
        K = X @ X.T
        K *= K
        if p.fit_linear:
            Z = (self.root * p.linear_inputs).astype(dtype)
            K += Z @ Z.T
        K /= p.n
        if p.fit_intercept:
            means = K.mean(axis=0)
            K -= means[None, :]
            K -= means[:, None]
            K += means.mean()
        return K

    def _gram(self, dtype):
        p, size = self.problem, max(1, _CHUNK // self.n_unknowns)
        chunks = [slice(i, i + size) for i in range(0, p.n, size)]
        mean = sum(self._features(c).sum(axis=0) for c in chunks) / p.n if p.fit_intercept else 0.0
        G = np.zeros((self.n_unknowns, self.n_unknowns), dtype=dtype)
        for c in chunks:
            F = (self._features(c) - mean).astype(dtype)
            G += F.T @ F
        return G

    def left_vectors(self):
        """Left singular vectors of Phi and its squared singular values, those near zero left out.

        Returns
        -------
        U : ndarray of shape (n, r)
        values : ndarray of shape (r,)
        """
        if self.dual:
            values, U = np.linalg.eigh(self._kernel(np.float64))
            kept = values > 1e-13 * max(values[-1], 0.0)
            return U[:, kept], values[kept]
        F = self._features()
        F = F - F.mean(axis=0) if self.problem.fit_intercept else F
        values, V = np.linalg.eigh(F.T @ F)
        kept = values > 1e-13 * max(values[-1], 0.0)
        return (F @ V[:, kept]) / np.sqrt(values[kept]), values[kept]

    def factor(self, dtype):
        """Cholesky factor of the system's matrix, of order s.

        Parameters
        ----------
        dtype : {numpy.float32, numpy.float64}

        Returns
        -------
        L : ndarray of shape (s, s) or None
            Lower triangular; None where the matrix is not definite.
        rcond : float
            Reciprocal condition number of the matrix; 0 where it is not definite.
        """
        A = self._kernel(dtype) if self.dual else self._gram(dtype)
        diagonal = np.einsum("ii->i", A)
        if self.dual and self.problem.fit_intercept:  # the constant direction, which the target has nothing of
            A += diagonal.mean() / self.problem.n
        # Single precision loses the small eigenvalues: moved away from zero, conjugate gradients put that right.
        mean = float(diagonal.mean())
        diagonal += dtype(self.problem.alpha + (3e-6 if dtype is np.float32 else 1e-15) * mean)
        norm = float(np.abs(A).sum(axis=0).max())
        try:
            L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None, 0.0
        rcond, _ = (lapack.spocon if dtype is np.float32 else lapack.dpocon)(L, norm, uplo="L")
        return L, float(rcond)

    def product(self, u):
        """The system's matrix, exact, applied to a vector.

        Parameters
        ----------
        u : ndarray of shape (s,)

        Returns
        -------
        ndarray of shape (s,)
        """
        forward, back = (self.adjoint, self.apply) if self.dual else (self.apply, self.adjoint)
        return back(forward(u)) + self.problem.alpha * u

    def solve(self, L, start, tol, max_iter):
        """The unknowns by conjugate gradients, preconditioned with a factor.

        They restart from the true residual, which is how the last digits come right.

        Parameters
        ----------
        L : ndarray of shape (s, s)
            Of `factor`.
        start : ndarray of shape (p,)
        tol : float
            Residual, relative to the right-hand side, at which it ends.
        max_iter : int

        Returns
        -------
        theta : ndarray of shape (p,)
        n_iter : int
        converged : bool
            Whether the residual came down to about `tol`.
        """
        base, z, right = self._begin(start)
        size, best, steps = np.linalg.norm(right), (np.inf, z), 0
        while steps < max_iter:
            residual = right - self.product(z)
            left = np.linalg.norm(residual)
            if not left < 0.5 * best[0]:
                break
            best = (left, z)
            if left <= tol * size:
                break
            solution = conjugate_gradients(
                self.product, residual, precondition=_preconditioner(L), own_norm=True, max_iter=max_iter - steps
            )
            z, steps = z + solution.x, steps + solution.n_products
        left, z = best
        return (base + self.adjoint(z) if self.dual else z), steps, bool(left <= 100.0 * tol * size)

    def _begin(self, start):
        """What is added to the solution in the end, its first value, and the right-hand side."""
        if not self.dual:
            return 0.0, start, self.adjoint(self.target)
        if self.problem.alpha > 0:
            return 0.0, np.zeros(self.problem.n), self.target
        return start, np.zeros(self.problem.n), self.target - self.apply(start)

    def solve_by_svd(self, start):
        """The unknowns from all singular values of Phi above rounding.

        Parameters
        ----------
        start : ndarray of shape (p,)
            Without ridge the answer is the solution nearest to it.

        Returns
        -------
        ndarray of shape (p,)
        """
        F = self._features()
        before = np.linalg.norm(F, axis=0)
        if self.problem.fit_linear:  # centred already
            before[self.q :] = self.root * np.sqrt(np.mean(self.problem.X**2, axis=0))
        F = F - F.mean(axis=0) if self.problem.fit_intercept else F
        sizes = np.linalg.norm(F, axis=0)
        # What centring leaves of a constant column is rounding, not to be scaled up.
        constant = sizes <= 10.0 * np.finfo(float).eps * before
        F[:, constant] = 0.0
        # Without ridge columns of unit length: small units of an input are not to be mistaken for rounding.
        sizes = np.where(constant | (self.problem.alpha > 0), 1.0, sizes)
        U, S, Vt = scipy.linalg.svd(F / sizes, full_matrices=False, check_finite=False)
        kept = S > max(F.shape) * np.finfo(float).eps * S[0] if S[0] > 0 else S > 0
        U, S, Vt = U[:, kept], S[kept], Vt[kept]
        base = start if self.problem.alpha == 0 else np.zeros_like(start)
        filtered = S / (S**2 + self.problem.alpha)
        for _ in range(2):  # the second pass is for the rounding of the first
            error = self.target - self.apply(base)
            base = base + Vt.T @ (filtered * (U.T @ error) - self.problem.alpha * filtered / S * (Vt @ base)) / sizes
        return base


def _preconditioner(L):
    """``v -> (L L^T)^-1 v``, L perhaps in single precision, which must not underflow."""

    def precondition(r):
        size = np.linalg.norm(r)
        return size * scipy.linalg.cho_solve((L, True), (r / size).astype(L.dtype), check_finite=False).astype(float)

    return precondition
